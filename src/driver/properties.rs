//! What a physical handle can only be given when it is made: to be exported as
//! a file, reached by network cards, decompressed into. Asked for where the
//! device supports it, and given up where the driver refuses. Calls nothing.

use std::sync::atomic::{AtomicU8, Ordering};

use super::sys::{self, MemAllocFlags, MemAllocationProp, MemLocation};

/// Properties of a handle, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties(u8);

/// Exported as a file descriptor.
pub const POSIX_FD: u8 = 1;
/// Reached by network cards.
pub const RDMA: u8 = 2;
/// Decompressed into by hardware.
pub const DECOMPRESS: u8 = 4;

impl Properties {
    /// Those that a device has, which is asked for each by its attribute
    /// (`CU_DEVICE_ATTRIBUTE_*`).
    pub fn supported(has: impl Fn(i32) -> bool) -> Self {
        let bit = |attribute, bit| if has(attribute) { bit } else { 0 };
        Self(
            bit(sys::ATTRIBUTE_POSIX_FD, POSIX_FD)
                | bit(sys::ATTRIBUTE_RDMA_VMM, RDMA)
                | bit(sys::ATTRIBUTE_DECOMPRESS, DECOMPRESS),
        )
    }

    /// The same without the last one; `None` where there was none.
    pub fn fewer(self) -> Option<Self> {
        let last = self.0.checked_ilog2()?;
        Some(Self(self.0 & !(1 << last)))
    }

    /// What it takes for a handle with these beside what was asked for.
    pub fn beside(self, asked: &MemAllocationProp) -> MemAllocationProp {
        let ours = self.of_handle(0);
        let (flags, more) = (asked.alloc_flags, ours.alloc_flags);
        MemAllocationProp {
            requested_handle_types: asked.requested_handle_types | ours.requested_handle_types,
            alloc_flags: MemAllocFlags {
                // Torch asks for it where the device says that it has it. Whether such a
                // handle can be opened is known here.
                gpu_direct_rdma_capable: more.gpu_direct_rdma_capable,
                usage: flags.usage | more.usage,
                ..flags
            },
            ..*asked
        }
    }

    /// What `cuMemCreate` takes for a handle with these on a device.
    pub fn of_handle(self, device: u32) -> MemAllocationProp {
        let has = |bit| self.0 & bit != 0;
        MemAllocationProp {
            kind: sys::ALLOCATION_PINNED,
            requested_handle_types: if has(POSIX_FD) {
                sys::HANDLE_POSIX_FD
            } else {
                0
            },
            location: location(device),
            win32_handle_metadata: 0,
            alloc_flags: MemAllocFlags {
                gpu_direct_rdma_capable: u8::from(has(RDMA)),
                usage: if has(DECOMPRESS) {
                    sys::USAGE_HW_DECOMPRESS
                } else {
                    0
                },
                ..MemAllocFlags::default()
            },
        }
    }
}

/// A device's own memory.
pub fn location(device: u32) -> MemLocation {
    MemLocation {
        kind: sys::LOCATION_DEVICE,
        id: device as i32,
    }
}

/// Devices whose properties are remembered; more are asked each time.
const DEVICES: usize = 64;
/// Nothing is remembered.
const UNKNOWN: u8 = 0x80;

/// The properties that each device last accepted.
pub struct Known([AtomicU8; DEVICES]);

impl Default for Known {
    fn default() -> Self {
        Self([const { AtomicU8::new(UNKNOWN) }; DEVICES])
    }
}

impl Known {
    /// Those of this device, if they are remembered.
    pub fn get(&self, device: u32) -> Option<Properties> {
        let bits = self.0.get(device as usize)?.load(Ordering::Relaxed);
        (bits != UNKNOWN).then_some(Properties(bits))
    }

    /// Remembers them.
    pub fn set(&self, device: u32, properties: Properties) {
        if let Some(known) = self.0.get(device as usize) {
            known.store(properties.0, Ordering::Relaxed);
        }
    }
}
