//! Result codes of the driver, as open values: a code that this file does not
//! name is still a valid value and travels unchanged.

use std::fmt;

/// A `CUresult`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Code(pub u32);

/// `Ok`, or a code other than [`Code::SUCCESS`].
pub type Result<T> = std::result::Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $value:literal),* $(,)?) => {
        impl Code {
            $(
                #[doc = concat!("`CUDA_", stringify!($name), "` or `CUDA_ERROR_", stringify!($name), "`.")]
                pub const $name: Code = Code($value);
            )*

            /// The name in cuda.h without its prefix, where this file knows it.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    MAP_FAILED = 205,
    ALREADY_MAPPED = 208,
    ALREADY_ACQUIRED = 210,
    NOT_MAPPED = 211,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_TIMEOUT = 702,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    ASSERT = 710,
    HARDWARE_STACK_ERROR = 714,
    ILLEGAL_INSTRUCTION = 715,
    MISALIGNED_ADDRESS = 716,
    INVALID_ADDRESS_SPACE = 717,
    INVALID_PC = 718,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_IMPLICIT = 906,
    STREAM_DETACHED = 917,
    UNKNOWN = 999,
}

impl Code {
    /// `Ok(())` for success, the code itself otherwise.
    pub fn ok(self) -> Result<()> {
        match self {
            Code::SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// Does this error stay with its context, so that every later call on it
    /// fails too? (CUDA driver API: "leaves the process in an inconsistent
    /// state"; of an MPS client that was ended, "must be terminated".)
    pub fn is_sticky(self) -> bool {
        matches!(
            self.0,
            214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911
        )
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}({})", self.0),
            None => write!(f, "CUresult({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_codes_are_values() {
        assert_eq!(Code(12345).ok(), Err(Code(12345)));
        assert_eq!(format!("{:?}", Code(12345)), "CUresult(12345)");
        assert_eq!(format!("{:?}", Code::OUT_OF_MEMORY), "OUT_OF_MEMORY(2)");
    }

    #[test]
    fn out_of_memory_is_not_sticky_and_a_crashed_kernel_is() {
        assert!(!Code::OUT_OF_MEMORY.is_sticky() && !Code::NOT_READY.is_sticky());
        assert!(Code::ILLEGAL_ADDRESS.is_sticky() && Code::LAUNCH_FAILED.is_sticky());
        // Uncorrectable errors of memory and NVLink, contained ones, a tensor core's memory that
        // a kernel kept, a server of MPS that ended its client, a device outside that failed.
        let others = [214, 220, 226, 721, 810, 911];
        assert!(others.into_iter().all(|code| Code(code).is_sticky()));
    }
}
