//! What a pointer is asked for, with the answers that an H200 gave.

use std::ffi::c_void;

use crate::abi::{Answer, Code, HANDLE_POSIX_FD, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST};
use crate::arena::{GRANULE, LARGE};
use crate::entry::{api, must_put, put};
use crate::mapping::Mapping;
use crate::memory::{Allocation, Source, holding};
use crate::state::Sim;

const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const HOST_POINTER: u32 = 4;
const TOKENS: u32 = 5;
const SYNC_MEMOPS: u32 = 6;
const RANGE_START: u32 = 11;
const RANGE_SIZE: u32 = 12;

/// An attribute's value, by its width.
#[derive(Clone, Copy)]
enum Value {
    Bool(bool),
    Word(u32),
    Long(u64),
    Tokens,
}

use Value::{Bool, Long, Word};

impl Value {
    /// # Safety
    /// `out` is valid for a write of the attribute's type.
    unsafe fn write(self, out: *mut c_void) -> Answer {
        // SAFETY: by the function's own contract.
        unsafe {
            match self {
                Bool(value) => must_put(out.cast(), u32::from(value)),
                Word(value) => must_put(out.cast(), value),
                Long(value) => must_put(out.cast(), value),
                Value::Tokens => must_put(out.cast(), [0u32; 3]),
            }
        }
    }

    /// The same type for a pointer that no device knows.
    fn of_unknown(attribute: u32) -> Value {
        match attribute {
            2 | 16 => Word(0),
            9 => Word(-2i32 as u32),
            5 => Value::Tokens,
            6 | 8 | 10 | 13 | 15 | 21 => Bool(false),
            _ => Long(0),
        }
    }
}

impl Sim {
    fn attribute(&self, attribute: u32, address: u64) -> Result<Value, Code> {
        if let Some((base, allocation)) = self.allocation_at(address).filter(|(_, a)| !a.freed) {
            self.of_allocation(attribute, address, (base, allocation))
        } else if let Some((base, mapping)) = holding(&self.mappings, address, |m| m.bytes) {
            self.of_mapping(attribute, address, (base, mapping))
        } else if let Some((base, pinned)) = holding(&self.pinned, address, |it| it.bytes) {
            of_pinned(attribute, address, (base, pinned.bytes))
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    fn of_allocation(
        &self,
        attribute: u32,
        address: u64,
        (base, allocation): (u64, &Allocation),
    ) -> Result<Value, Code> {
        let managed = allocation.source == Source::Managed;
        let plain = managed || matches!(allocation.source, Source::Plain | Source::Ipc);
        let pool = match allocation.source {
            Source::Pool(pool) => pool,
            _ => 0,
        };
        // Stream-ordered memory is mapped by the pieces of its pool.
        let pieces = self.pools.get(&pool);
        let mapped = pieces.and_then(|pool| pool.mapping_at(allocation.offset + (address - base)));
        let shift = base.wrapping_sub(allocation.offset);
        let pages = base / GRANULE * GRANULE;
        let (piece, piece_bytes) = match mapped {
            Some((offset, bytes)) => (offset.wrapping_add(shift), bytes),
            None => (
                pages,
                (base + allocation.held).next_multiple_of(GRANULE) - pages,
            ),
        };
        let shared = plain && allocation.held < LARGE;
        Ok(match attribute {
            1 => Long(if plain { allocation.context } else { 0 }),
            2 => Word(MEMORYTYPE_DEVICE),
            // The host reaches it by the same address.
            4 if managed => Long(address),
            3 => {
                let reader = &self.contexts[&self.current()?];
                let reaches = self.is_reached(reader, allocation);
                Long(reaches.then_some(address).ok_or(Code::INVALID_VALUE)?)
            }
            5 => Value::Tokens,
            6 => Bool(managed || allocation.sync_memops),
            20 if shared => Long(pages),
            7 | 20 => Long(allocation.id),
            8 => Bool(managed),
            9 => Word(allocation.device as u32),
            10 | 21 => Bool(allocation.source == Source::Plain),
            15 => Bool(allocation.source == Source::Plain && !self.lacks.rdma()),
            11 => Long(base),
            12 => Long(allocation.bytes),
            13 => Bool(true),
            14 => Long(pieces.map_or(0, |pool| pool.handle_types.into())),
            16 => Word(3),
            17 => Long(pool),
            18 => Long(piece_bytes),
            19 => Long(piece),
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    fn of_mapping(
        &self,
        attribute: u32,
        address: u64,
        (base, mapping): (u64, &Mapping),
    ) -> Result<Value, Code> {
        let handle = &self.handles[&mapping.handle];
        let reservation = holding(&self.reservations, address, |bytes| *bytes);
        let (start, length) = reservation.map_or((base, mapping.bytes), |(at, b)| (at, *b));
        let types = handle.properties.requested_handle_types & HANDLE_POSIX_FD;
        Ok(match attribute {
            1 => Long(0),
            2 => Word(MEMORYTYPE_DEVICE),
            3 => {
                let reader = self.contexts[&self.current()?].device;
                let reaches = mapping.grants(reader, false);
                Long(reaches.then_some(address).ok_or(Code::INVALID_VALUE)?)
            }
            5 => Value::Tokens,
            6 => Bool(handle.sync_memops),
            7 | 20 => Long(handle.id),
            8 | 10 => Bool(false),
            9 => Word(handle.device as u32),
            11 => Long(start),
            12 => Long(length),
            13 => Bool(true),
            14 => Long(u64::from(types)),
            15 => Bool(handle.properties.gpu_direct_rdma_capable != 0),
            // That of the current device; with no context there is none.
            16 => Word(self.current().map_or(0, |reader| {
                mapping.access[self.contexts[&reader].device].into()
            })),
            17 => Long(0),
            18 => Long(mapping.bytes),
            19 => Long(base),
            21 => Bool(handle.properties.usage & 2 != 0),
            _ => return Err(Code::INVALID_VALUE),
        })
    }
}

/// Page-locked memory of the host.
fn of_pinned(attribute: u32, address: u64, (base, bytes): (u64, u64)) -> Result<Value, Code> {
    Ok(match attribute {
        1 => Long(crate::state::current_context().unwrap_or(0)),
        2 => Word(MEMORYTYPE_HOST),
        3 | 4 => Long(address),
        9 => Word(0),
        11 | 19 | 20 => Long(base),
        12 | 18 => Long(bytes),
        13 => Bool(true),
        16 => Word(3),
        known @ 5..=21 => Value::of_unknown(known),
        _ => return Err(Code::INVALID_VALUE),
    })
}

impl Sim {
    /// An attribute's value in a list of several, which fails for none of them;
    /// `None` where nothing is written.
    fn attribute_in_list(&self, attribute: u32, address: u64) -> Option<Value> {
        match self.attribute(attribute, address) {
            Ok(value) => Some(value),
            // An address that nobody knows has no bounds, and is itself.
            Err(_) if !self.is_known(address) => match attribute {
                RANGE_START | RANGE_SIZE => None,
                HOST_POINTER => Some(Long(address)),
                _ => Some(Value::of_unknown(attribute)),
            },
            Err(_) => Some(Value::of_unknown(attribute)),
        }
    }

    fn is_known(&self, address: u64) -> bool {
        self.attribute(MEMORY_TYPE, address).is_ok()
    }

    /// Who asks for tokens lets another device reach the memory: its copies
    /// are synchronous from then on.
    fn synchronise_copies(&mut self, address: u64) {
        if let Some((base, _)) = self.allocation_at(address) {
            if let Some(allocation) = self.allocations.get_mut(&base) {
                allocation.sync_memops = true;
            }
        } else if let Some((_, mapping)) = holding(&self.mappings, address, |m| m.bytes)
            && let Some(handle) = self.handles.get_mut(&mapping.handle)
        {
            handle.sync_memops = true;
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuPointerGetAttribute(out: *mut c_void, attribute: u32, address: u64) {
        let value = sim.attribute(attribute, address);
        if matches!(attribute, DEVICE_POINTER | HOST_POINTER) && value.is_err() && sim.is_known(address) {
            // It is told, too, that there is none.
            // SAFETY: the caller passes the type of the attribute.
            unsafe { put(out.cast(), 0_u64) };
        }
        let value = value?;
        if attribute == TOKENS {
            sim.synchronise_copies(address);
        }
        // SAFETY: the caller passes the type of the attribute.
        unsafe { value.write(out) }
    }
    fn cuPointerGetAttributes(count: u32, attributes: *const u32, out: *const *mut c_void, address: u64) {
        if count == 0 || attributes.is_null() || out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // Of a list with a place that is none nothing is written.
        // SAFETY: the caller passes as many pointers.
        if (0..count as usize).any(|i| unsafe { out.add(i).read() }.is_null()) {
            return Err(Code::INVALID_VALUE);
        }
        for i in 0..count as usize {
            // SAFETY: the caller passes `count` attributes and as many pointers
            // to their types.
            unsafe {
                let attribute = attributes.add(i).read();
                if !(1..=21).contains(&attribute) || attribute == TOKENS {
                    return Err(Code::INVALID_VALUE);
                }
                if let Some(value) = sim.attribute_in_list(attribute, address) {
                    value.write(out.add(i).read())?;
                }
            }
        }
        Ok(())
    }
    // It needs no context.
    fn cuPointerSetAttribute(value: *const c_void, attribute: u32, address: u64) {
        sim.refuse_unsafe()?;
        if holding(&sim.mappings, address, |m| m.bytes).is_some() && !value.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        if value.is_null() || attribute != SYNC_MEMOPS {
            return Err(Code::INVALID_VALUE);
        }
        let (base, _) = sim.allocation_at(address).ok_or(Code::INVALID_VALUE)?;
        if let Some(allocation) = sim.allocations.get_mut(&base) {
            // SAFETY: not null; the attribute is a 32-bit flag.
            allocation.sync_memops = unsafe { value.cast::<u32>().read() } != 0;
        }
        Ok(())
    }
}
