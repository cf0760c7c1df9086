//! The driver's structures and constants as published in cuda.h (12.0 to 13.0),
//! with assertions on their layout. Types only: nothing is linked.

/// `CUmemLocation`: where physical memory lies.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemLocation {
    /// `CUmemLocationType`; 1 is a device.
    pub kind: u32,
    /// Device ordinal.
    pub id: i32,
}

/// `CUmemAllocationProp.allocFlags`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemAllocFlags {
    /// 1 asks for compressible memory.
    pub compression_type: u8,
    /// 1 asks for memory that third-party devices may reach.
    pub gpu_direct_rdma_capable: u8,
    /// Usage bits; 2 (`CU_MEM_CREATE_USAGE_HW_DECOMPRESS`) asks for memory that the decompression engine takes.
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 4],
}

/// `CUmemAllocationProp`: the properties of a handle.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemAllocationProp {
    /// `CUmemAllocationType`; 1 is pinned.
    pub kind: u32,
    /// `CUmemAllocationHandleType` bits.
    pub requested_handle_types: u32,
    /// Where.
    pub location: MemLocation,
    /// Windows only: null.
    pub win32_handle_metadata: usize,
    /// Flags.
    pub alloc_flags: MemAllocFlags,
}

/// `CUmemAccessDesc`: who may do what with a mapping.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemAccessDesc {
    /// Who.
    pub location: MemLocation,
    /// `CUmemAccess_flags`; 3 is read and write.
    pub flags: u32,
}

const _: () = {
    assert!(size_of::<MemLocation>() == 8);
    assert!(size_of::<MemAllocFlags>() == 8);
    assert!(size_of::<MemAllocationProp>() == 32);
    assert!(std::mem::offset_of!(MemAllocationProp, location) == 8);
    assert!(std::mem::offset_of!(MemAllocationProp, alloc_flags) == 24);
    assert!(size_of::<MemAccessDesc>() == 12);
};

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`.
pub const LOCATION_HOST: u32 = 2;
/// `CU_MEM_LOCATION_TYPE_HOST_NUMA`.
pub const LOCATION_HOST_NUMA: u32 = 3;
/// `CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT`.
pub const LOCATION_HOST_NUMA_CURRENT: u32 = 4;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub const ALLOCATION_PINNED: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const HANDLE_POSIX_FD: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub const HANDLE_FABRIC: u32 = 8;
/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`.
pub const ACCESS_NONE: u32 = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`.
pub const ACCESS_READ: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const ACCESS_READ_WRITE: u32 = 3;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
pub const GRANULARITY_MINIMUM: u32 = 0;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_DISABLE_TIMING: u32 = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub const CAPTURE_MODE_RELAXED: u32 = 2;
/// `CU_MEM_CREATE_USAGE_HW_DECOMPRESS`.
pub const USAGE_HW_DECOMPRESS: u16 = 2;

/// `CUdevice_attribute`: the device's memory is the host's.
pub const ATTRIBUTE_INTEGRATED: i32 = 18;
/// `CUdevice_attribute`: virtual memory management is supported.
pub const ATTRIBUTE_VMM: i32 = 102;
/// `CUdevice_attribute`: POSIX file descriptors as handle type.
pub const ATTRIBUTE_POSIX_FD: i32 = 103;
/// `CUdevice_attribute`: GPUDirect RDMA with virtual memory management.
pub const ATTRIBUTE_RDMA_VMM: i32 = 110;
/// `CUdevice_attribute`: hardware decompression engine, algorithm mask.
pub const ATTRIBUTE_DECOMPRESS: i32 = 136;

/// `CUpointer_attribute`.
#[expect(
    missing_docs,
    reason = "named as in cuda.h, behind `CU_POINTER_ATTRIBUTE_`"
)]
pub mod pointer {
    pub const CONTEXT: u32 = 1;
    pub const MEMORY_TYPE: u32 = 2;
    pub const DEVICE_POINTER: u32 = 3;
    pub const HOST_POINTER: u32 = 4;
    pub const P2P_TOKENS: u32 = 5;
    pub const SYNC_MEMOPS: u32 = 6;
    pub const BUFFER_ID: u32 = 7;
    pub const DEVICE_ORDINAL: u32 = 9;
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;
    pub const RANGE_START_ADDR: u32 = 11;
    pub const RANGE_SIZE: u32 = 12;
    pub const MAPPED: u32 = 13;
    pub const ALLOWED_HANDLE_TYPES: u32 = 14;
    pub const IS_GPU_DIRECT_RDMA_CAPABLE: u32 = 15;
    pub const ACCESS_FLAGS: u32 = 16;
    pub const MEMPOOL_HANDLE: u32 = 17;
    pub const MAPPING_SIZE: u32 = 18;
    pub const MAPPING_BASE_ADDR: u32 = 19;
    pub const MEMORY_BLOCK_ID: u32 = 20;
    pub const IS_HW_DECOMPRESS_CAPABLE: u32 = 21;
}
