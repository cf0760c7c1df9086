//! Arrays: device memory without an address. They only take their share, so
//! that programs can run out of memory with them.

use crate::abi::{Answer, Code};
use crate::arena::GRANULE;
use crate::clock::cost;
use crate::entry::{api, must_put};
use crate::state::Sim;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Descriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Descriptor3D {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

pub struct Array {
    pub bytes: u64,
    device: usize,
    offset: u64,
}

/// Bytes of an element of a `CUarray_format`.
fn element(format: u32) -> Result<u64, Code> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(Code::INVALID_VALUE),
    }
}

impl Sim {
    fn take_array(
        &mut self,
        out: *mut u64,
        extent: [usize; 3],
        format: u32,
        channels: u32,
        levels: u32,
    ) -> Answer {
        let device = self.current_device()?;
        self.refuse_unsafe()?;
        if out.is_null() || extent[0] == 0 || !matches!(channels, 1 | 2 | 4) {
            return Err(Code::INVALID_VALUE);
        }
        let mut bytes = element(format)? * u64::from(channels);
        for length in extent {
            bytes = bytes
                .checked_mul(length.max(1) as u64)
                .ok_or(Code::OUT_OF_MEMORY)?;
        }
        // Every further level is at most half of the one before.
        let bytes = if levels > 1 {
            bytes.saturating_mul(2)
        } else {
            bytes
        };
        let bytes = bytes
            .checked_next_multiple_of(GRANULE)
            .ok_or(Code::OUT_OF_MEMORY)?;
        self.clock.charge(cost::alloc(bytes));
        let offset = self.devices[device]
            .arena
            .take_granules(bytes, &mut self.ledger)?;
        let handle = self.number(0x6100_0000_0000);
        self.arrays.insert(
            handle,
            Array {
                bytes,
                device,
                offset,
            },
        );
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }

    fn give_array(&mut self, array: u64) -> Answer {
        self.refuse_unsafe()?;
        let device = self.arrays.get(&array).ok_or(Code::INVALID_HANDLE)?.device;
        self.drain_device(device)?;
        let array = self.arrays.remove(&array).ok_or(Code::INVALID_HANDLE)?;
        self.clock.charge(cost::free(array.bytes));
        let arena = &mut self.devices[array.device].arena;
        arena.give_granules(array.offset, array.bytes, &mut self.ledger);
        Ok(())
    }
}

api! { plain EXPORTS |sim|
    fn cuArrayCreate_v2(out: *mut u64, descriptor: *const Descriptor) {
        if descriptor.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let d = unsafe { descriptor.read() };
        sim.take_array(out, [d.width, d.height, 1], d.format, d.channels, 1)
    }
    fn cuArray3DCreate_v2(out: *mut u64, descriptor: *const Descriptor3D) {
        if descriptor.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let d = unsafe { descriptor.read() };
        sim.take_array(out, [d.width, d.height, d.depth], d.format, d.channels, 1)
    }
    fn cuMipmappedArrayCreate(out: *mut u64, descriptor: *const Descriptor3D, levels: u32) {
        if descriptor.is_null() || levels == 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let d = unsafe { descriptor.read() };
        sim.take_array(out, [d.width, d.height, d.depth], d.format, d.channels, levels)
    }
    fn cuMipmappedArrayDestroy(array: u64) {
        sim.give_array(array)
    }
    fn cuArrayDestroy(array: u64) {
        sim.give_array(array)
    }
}
