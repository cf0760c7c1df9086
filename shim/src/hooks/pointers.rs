//! What programs ask about a pointer. Ours answer as cudaMalloc's memory would,
//! or as the memory pool's where it was asked for so, in every respect:
//! libraries combine the answers, and half of them right is worse than none.

use std::ffi::c_void;

use memcuda_core::driver::sys::pointer;
use memcuda_core::driver::{Access, Address, Code, Context};
use memcuda_core::pool::{BlockInfo, Owner};
use memcuda_core::units::MIB;

use crate::engine::Engine;
use crate::share::held;
use crate::torch;
use crate::whose::{self, Below, Memory, PAGE, Whose};

/// Our buffer ids lie apart from the driver's, which count from 1.
const OUR_IDS: u64 = 1 << 62;

/// So do those of blocks of memory that several allocations share.
const OUR_PAGES: u64 = 1 << 61;

/// Most bytes of an allocation that shares its page with others.
const MOST_SHARED: u64 = MIB;

crate::hooks! {
    /// `cuPointerGetAttribute`.
    cuPointerGetAttribute ["cuPointerGetAttribute" since 4000] (
        value: *mut c_void, attribute: u32, address: Address,
    ) |real, engine| {
        let asked = match whose::of(engine, address) {
            Whose::Freed => {
                // The driver knows no such memory, unless more is wrong: as
                // mapped memory, which it knows, the address tells.
                let mut nowhere = [0_u64; 4];
                // SAFETY: no attribute is longer than that.
                let code = unsafe { real(nowhere.as_mut_ptr().cast(), attribute, address) };
                return code.ok().err().unwrap_or(Code::INVALID_VALUE);
            }
            Whose::Live(asked) => Some(asked),
            Whose::Foreign => None,
        };
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(value, attribute, address) };
        let (Code::SUCCESS, Some(asked), false) = (code, asked, value.is_null()) else {
            return code;
        };
        // SAFETY: the call succeeded, so it wrote this attribute.
        unsafe { answer(engine, &asked, attribute, value) }
    }

    /// `cuPointerGetAttributes`.
    cuPointerGetAttributes ["cuPointerGetAttributes" since 7000] (
        count: u32, attributes: *const u32, values: *mut *mut c_void, address: Address,
    ) |real, engine| {
        let asked = whose::of(engine, address);
        // Freed memory is answered like any address that is no memory of the
        // device at all: success, every value empty but the address itself.
        let known = if matches!(asked, Whose::Freed) { 0 } else { address };
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(count, attributes, values, known) };
        let told = match (code, &asked) {
            (_, Whose::Foreign) => 0,
            (Code::SUCCESS, _) => count as usize,
            (Code::INVALID_VALUE, _) if !attributes.is_null() && !values.is_null() => {
                // SAFETY: the array is as long as said.
                let is_none = |index| unsafe { *values.add(index) }.is_null();
                let is_told = |index: &usize| {
                    // SAFETY: both arrays are as long as said; one of each.
                    let code = unsafe {
                        real(1, attributes.add(*index), values.add(*index), known)
                    };
                    code == Code::SUCCESS
                };
                // It has written what stands before the first that it refuses; nothing, where a
                // value has no place.
                match (0..count as usize).any(is_none) {
                    true => 0,
                    false => (0..count as usize).take_while(is_told).count(),
                }
            }
            _ => 0,
        };
        for index in 0..told {
            // SAFETY: both arrays are as long as said, and the call wrote what each value points
            // to.
            unsafe {
                let (attribute, value) = (*attributes.add(index), *values.add(index));
                match &asked {
                    _ if value.is_null() => {}
                    Whose::Live(asked) => _ = answer(engine, asked, attribute, value),
                    _ if attribute == pointer::HOST_POINTER => {
                        value.cast::<Address>().write_unaligned(address);
                    }
                    _ => {}
                }
            }
        }
        code
    }

    /// `cuPointerSetAttribute`: the driver refuses SYNC_MEMOPS on mapped
    /// memory, so the allocation's whole context gets it.
    cuPointerSetAttribute ["cuPointerSetAttribute" since 6000] (
        value: *const c_void, attribute: u32, address: Address,
    ) |real, engine| {
        match whose::of(engine, address) {
            Whose::Freed => Code::INVALID_VALUE,
            Whose::Live(asked) if attribute == pointer::SYNC_MEMOPS && !value.is_null() => {
                // SAFETY: this attribute is an unsigned int, by the driver's contract.
                if unsafe { value.cast::<u32>().read() } == 0 {
                    asked.device.memops.clear(&engine.calls, asked.which());
                    return Code::SUCCESS;
                }
                mark(engine, &asked).err().unwrap_or(Code::SUCCESS)
            }
            Whose::Live(_) if attribute != pointer::SYNC_MEMOPS => Code::INVALID_VALUE,
            // SAFETY: the program's own call, passed on.
            _ => unsafe { real(value, attribute, address) },
        }
    }
}

/// Makes copies of an allocation synchronous: who asks for that is about to register it.
fn mark(engine: &Engine, memory: &Memory) -> Result<(), Code> {
    if memory.is_torchs() {
        torch::is_registered();
    }
    let (memops, block) = (&memory.device.memops, &memory.block);
    // Where that has ended, the current one gets the flag, if there is one.
    let context = match block.context == Context::default() {
        true => engine.calls.current().unwrap_or_default(),
        false => block.context,
    };
    let outlives = block.owner == Owner::MemoryPool;
    memops.set(&engine.calls, memory.which(), context, outlives)
}

/// Was this opened by a handle of CUDA IPC? The driver exports such memory no
/// further.
fn is_imported(block: &BlockInfo) -> bool {
    block.attached && held::is_open(block.base)
}

/// Writes what the driver's own memory would answer, where that differs
/// from what the driver says of mapped memory. Returns the code of a call that asks for this
/// attribute alone.
///
/// # Safety
/// `value` points to what the driver's contract says for the attribute,
/// which the driver has written.
unsafe fn answer(engine: &Engine, memory: &Memory, attribute: u32, value: *mut c_void) -> Code {
    let (device, block) = (memory.device, &memory.block);
    let plain = block.owner == Owner::Context;
    let pages = memory.pages();
    if attribute == pointer::P2P_TOKENS {
        // Who asks for them lets another device reach the memory: the driver
        // makes its copies synchronous, ours where it can.
        let _ = mark(engine, memory);
    }
    let is_hidden = attribute == pointer::DEVICE_POINTER && !memory.is_reached(engine);
    let wide = match attribute {
        pointer::DEVICE_POINTER if is_hidden => Some(0),
        pointer::CONTEXT if plain => Some(device.views.whole(block.context).0),
        pointer::CONTEXT => Some(0),
        pointer::MEMORY_BLOCK_ID if plain && block.bytes <= MOST_SHARED => {
            Some(OUR_PAGES | (block.base / PAGE))
        }
        pointer::BUFFER_ID | pointer::MEMORY_BLOCK_ID => {
            // Each device's pool counts by itself.
            Some(OUR_IDS | u64::from(device.ordinal) << 48 | block.id)
        }
        pointer::RANGE_START_ADDR => Some(block.base),
        pointer::RANGE_SIZE => Some(block.bytes),
        pointer::ALLOWED_HANDLE_TYPES => Some(0),
        pointer::MEMPOOL_HANDLE if plain => Some(0),
        pointer::MEMPOOL_HANDLE => device.default_mem_pool(&engine.calls),
        // A memory pool is mapped in pieces, ours as the driver's own.
        pointer::MAPPING_BASE_ADDR if plain => Some(pages.start),
        pointer::MAPPING_SIZE if plain => Some(pages.end - pages.start),
        _ => None,
    };
    let flag = match attribute {
        pointer::IS_LEGACY_CUDA_IPC_CAPABLE => Some(plain && !is_imported(block)),
        pointer::MAPPED => Some(true),
        pointer::SYNC_MEMOPS => Some(device.memops.is_set(memory.which())),
        pointer::IS_GPU_DIRECT_RDMA_CAPABLE if !plain => Some(false),
        // Where the device has such an engine, memory for it was asked for,
        // and the driver knows whether it was granted.
        pointer::IS_HW_DECOMPRESS_CAPABLE if !plain => Some(false),
        pointer::IS_HW_DECOMPRESS_CAPABLE if !device.decompresses(&engine.calls) => Some(true),
        _ => None,
    };
    // Of mapped memory the driver tells the access of the current context's device, and none
    // without one; of its own memory that of the device on which it lies.
    let elsewhere = || {
        let current = engine.current().map(|(_, device)| device.ordinal);
        current.ok() != Some(device.ordinal)
    };
    let access = (attribute == pointer::ACCESS_FLAGS && elsewhere()).then(|| match memory.below {
        Below::Pool(pool) => pool.access(block.base).unwrap_or_default(),
        Below::Pages(..) => Access::Write,
    });
    // SAFETY: as the driver has just written there: pointers, sizes, ids and handle
    // types are 64 bits, flags and access 32. Of a flag the low byte tells.
    unsafe {
        if let Some(access) = access {
            value.cast::<u32>().write_unaligned(access.flags());
        }
        if let Some(wide) = wide {
            value.cast::<u64>().write_unaligned(wide);
        }
        if let Some(flag) = flag {
            value.cast::<u8>().write(flag.into());
        }
    }
    match is_hidden {
        true => Code::INVALID_VALUE,
        false => Code::SUCCESS,
    }
}
