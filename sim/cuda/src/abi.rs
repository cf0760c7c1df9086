//! Result codes, constants and structures as published in cuda.h (13.0), and
//! their layout assertions. Types only.

/// A `CUresult`: an open value, never an enumeration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub u32);

/// What a simulated call answers.
pub type Answer = Result<(), Code>;

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $(pub const $name: Code = Code($value);)*
        }
        /// Name and description of every code that the simulation knows, both
        /// ending in a NUL.
        pub const CODES: &[(Code, &str, &str)] = &[
            $((Code($value), concat!("CUDA_ERROR_", stringify!($name), "\0"), concat!($text, "\0")),)*
        ];
    };
}

codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_CONTEXT = 201, "invalid device context";
    UNSUPPORTED_LIMIT = 215, "limit is not supported on this architecture";
    PEER_ACCESS_UNSUPPORTED = 217, "peer access is not supported between these two devices";
    FILE_NOT_FOUND = 301, "file not found";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "attempt to terminate a thread-local capture sequence from another thread";
    INVALID_RESOURCE_TYPE = 914, "invalid resource type";
    STREAM_DETACHED = 917, "the stream is detached from its green context";
    UNKNOWN = 999, "unknown error";
}

impl Code {
    pub const SUCCESS: Code = Code(0);
    /// Never answered: the call must wait first, and is made once more then.
    pub const AGAIN: Code = Code(u32::MAX);

    /// Does this error stay with its context?
    pub fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 700 | 702 | 709 | 710 | 714..=719)
    }
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct MemLocation {
    /// `CUmemLocationType`.
    pub kind: u32,
    pub id: i32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct MemAllocationProp {
    pub kind: u32,
    pub requested_handle_types: u32,
    pub location: MemLocation,
    pub win32_handle_metadata: usize,
    pub compression_type: u8,
    pub gpu_direct_rdma_capable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MemAccessDesc {
    pub location: MemLocation,
    pub flags: u32,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemPoolProps {
    pub alloc_type: u32,
    pub handle_types: u32,
    pub location: MemLocation,
    pub win32_security_attributes: usize,
    pub max_size: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcMemHandle(pub [u8; 64]);

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Uuid(pub [u8; 16]);

/// `CUsimRange` of `memcuda_sim.h`: what a simulated kernel touches.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SimRange {
    pub base: u64,
    pub bytes: usize,
    pub write: u32,
}

/// `CUhostFn`.
pub type HostFn = unsafe extern "C" fn(*mut libc::c_void);

/// `CU_CTX_MAP_HOST`, which stays once it is set.
pub const MAP_HOST: u32 = 8;
/// `CU_CTX_SYNC_MEMOPS`.
pub const SYNC_MEMOPS: u32 = 0x80;
pub const LOCATION_DEVICE: u32 = 1;
pub const ALLOCATION_PINNED: u32 = 1;
pub const HANDLE_NONE: u32 = 0;
pub const HANDLE_POSIX_FD: u32 = 1;
pub const HANDLE_FABRIC: u32 = 8;
pub const ACCESS_READ: u32 = 1;
pub const ACCESS_READ_WRITE: u32 = 3;
pub const MEMORYTYPE_HOST: u32 = 1;
pub const MEMORYTYPE_DEVICE: u32 = 2;

const _: () = {
    assert!(size_of::<MemAllocationProp>() == 32);
    assert!(size_of::<MemAccessDesc>() == 12);
    assert!(size_of::<MemPoolProps>() == 88);
    assert!(size_of::<SimRange>() == 24);
};
