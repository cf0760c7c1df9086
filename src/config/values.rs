//! What the settings can be, one type a variable.

use super::parse::choose;
use std::ffi::OsStr;
use std::path::PathBuf;

/// A choice, and the word by which each value is asked for.
macro_rules! words {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$doc:meta])* $word:literal $value:ident,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub enum $name {
            $($(#[$doc])* $value,)*
        }

        impl $name {
            /// What is accepted.
            pub const WORDS: &str = {
                const ALL: &str = concat!($($word, ", "),*);
                ALL.split_at(ALL.len() - ", ".len()).0
            };

            /// The value of a word.
            pub fn of(word: &OsStr) -> Option<Self> {
                choose(word, &[$(($word, Self::$value)),*])
            }

            /// Its word.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }
    };
}

words! {
    /// What serves an allocation (`MEMCUDA_POLICY`).
    Policy {
        /// The stitching pool.
        #[default]
        "stitch" Stitch,
        /// One physical handle per allocation: a baseline.
        "direct" Direct,
        /// The plain driver, with full bookkeeping: a baseline.
        "track" Track,
    }
}

words! {
    /// How PyTorch's allocator is set up (`MEMCUDA_TORCH`).
    Torch {
        /// `Native` where it can be proven safe for the torch at hand, else `Keep`.
        #[default]
        "auto" Auto,
        /// Torch's own allocator, asked to give back what it has idle: as `Expandable`
        /// where torch and machine are fit for it, else as `Segments`.
        "native" Native,
        /// Torch's expandable segments, asked to give back at the peak, over pages that
        /// are kept.
        "expandable" Expandable,
        /// Torch's segments by cudaMalloc, given back one by one before the pool grows.
        "segments" Segments,
        /// `backend:cudaMallocAsync`, served by the pool.
        "async" Async,
        /// Torch's settings untouched.
        "keep" Keep,
    }
}

words! {
    /// May cudaFree return before the device is idle (`MEMCUDA_FREE`)?
    Free {
        /// Only for an identified torch allocator.
        #[default]
        "auto" Auto,
        /// Never: wait as the driver does.
        "sync" Sync,
        /// Always: the memory is lent again only after a completion.
        "ordered" Ordered,
    }
}

/// Idle memory kept while another process is on the device (`MEMCUDA_IDLE`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Idle {
    /// So many bytes.
    Bytes(u64),
    /// This part of the device's memory, in percent.
    Percent(f64),
}

impl Idle {
    /// Bytes kept on a device of `total` bytes.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Idle::Bytes(bytes) => bytes,
            Idle::Percent(percent) => (total as f64 * percent / 100.0) as u64,
        }
    }
}

words! {
    /// What becomes of `RTLD_DEEPBIND` when a library is loaded (`MEMCUDA_DEEPBIND`).
    Deepbind {
        /// It is taken out of the flags.
        #[default]
        "strip" Strip,
        /// It stays: the library bypasses the shim.
        "keep" Keep,
    }
}

words! {
    /// Extra checks (`MEMCUDA_DEBUG`).
    Debug {
        /// None.
        #[default]
        "none" None,
        /// Memory is filled with NaN patterns when it is lent.
        "poison" Poison,
        /// Guard words behind every allocation, checked when it is freed.
        "canary" Canary,
    }
}

words! {
    /// Least severity that is written (`MEMCUDA_LOG`).
    Level {
        /// Nothing.
        "off" Off,
        /// Failures.
        "error" Error,
        /// What a user should know, at most once a process each.
        #[default]
        "warn" Warn,
        /// Decisions.
        "info" Info,
        /// Every slow-path step.
        "debug" Debug,
    }
}

words! {
    /// What is recorded of the stack (`MEMCUDA_TRACE_STACKS`).
    Stacks {
        /// Nothing.
        #[default]
        "none" None,
        /// The functions and libraries on it.
        "c" C,
        /// The functions of Python that the thread is in; where it is in none, as
        /// [`Stacks::C`].
        "python" Python,
    }
}

/// Who keeps named and exported memory (`MEMCUDA_KEEPER`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Keeper {
    /// The user's own, started when it is first needed.
    #[default]
    Auto,
    /// Nobody: no memory has a name, and none is exported.
    Off,
    /// The one behind this socket; never started from here.
    Socket(PathBuf),
}
