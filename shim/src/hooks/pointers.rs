//! What programs ask about a pointer. Ours answer as cudaMalloc's memory would,
//! in every respect: libraries combine the answers, and half of them right is
//! worse than none.

use std::ffi::c_void;

use memcuda_core::driver::{Address, Code};
use memcuda_core::pool::BlockInfo;

use crate::device::Device;
use crate::engine::Engine;

/// `CUpointer_attribute`.
mod attribute {
    pub const CONTEXT: u32 = 1;
    pub const SYNC_MEMOPS: u32 = 6;
    pub const BUFFER_ID: u32 = 7;
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;
    pub const RANGE_START_ADDR: u32 = 11;
    pub const RANGE_SIZE: u32 = 12;
    pub const MAPPED: u32 = 13;
    pub const ALLOWED_HANDLE_TYPES: u32 = 14;
    pub const MEMPOOL_HANDLE: u32 = 17;
    pub const MAPPING_SIZE: u32 = 18;
    pub const MAPPING_BASE_ADDR: u32 = 19;
    pub const MEMORY_BLOCK_ID: u32 = 20;
}

/// `CU_CTX_SYNC_MEMOPS`.
const CTX_SYNC_MEMOPS: u32 = 0x80;

/// Our buffer ids lie apart from the driver's, which count from 1.
const OUR_IDS: u64 = 1 << 62;

crate::hooks! {
    /// `cuPointerGetAttribute`.
    cuPointerGetAttribute ["cuPointerGetAttribute" since 4000] (
        value: *mut c_void, attribute: u32, address: Address,
    ) |real, engine| {
        let owner = engine.owner(address);
        let block = match owner {
            Some(device) => match live(device, address) {
                Some(block) => Some(block),
                // Freed: the driver knows no such memory.
                None => return Code::INVALID_VALUE,
            },
            None => None,
        };
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(value, attribute, address) };
        if let (Code::SUCCESS, Some(block), false) = (code, block, value.is_null()) {
            // SAFETY: the call succeeded, so it wrote this attribute.
            unsafe { answer(engine, &block, attribute, value) };
        }
        code
    }

    /// `cuPointerGetAttributes`.
    cuPointerGetAttributes ["cuPointerGetAttributes" since 7000] (
        count: u32, attributes: *const u32, values: *mut *mut c_void, address: Address,
    ) |real, engine| {
        let owner = engine.owner(address);
        let block = owner.and_then(|device| live(device, address));
        // Freed memory is answered like any address that is no memory of the
        // device at all: success, every value empty.
        let asked = if owner.is_some() && block.is_none() { 0 } else { address };
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(count, attributes, values, asked) };
        if let (Code::SUCCESS, Some(block)) = (code, block) {
            for index in 0..count as usize {
                // SAFETY: the call succeeded, so both arrays are as long as
                // said and it wrote what each value points to.
                unsafe {
                    let value = *values.add(index);
                    if !value.is_null() {
                        answer(engine, &block, *attributes.add(index), value);
                    }
                }
            }
        }
        code
    }

    /// `cuPointerSetAttribute`: the driver refuses SYNC_MEMOPS on mapped
    /// memory, so the whole context gets it, which is the stronger promise.
    cuPointerSetAttribute ["cuPointerSetAttribute" since 6000] (
        value: *const c_void, attribute: u32, address: Address,
    ) |real, engine| {
        let block = engine.owner(address).and_then(|device| live(device, address));
        let (Some(block), attribute::SYNC_MEMOPS, false) = (block, attribute, value.is_null())
        else {
            // SAFETY: the program's own call, passed on.
            return unsafe { real(value, attribute, address) };
        };
        // SAFETY: this attribute is an unsigned int, by the driver's contract.
        let wanted = unsafe { value.cast::<u32>().read() } != 0;
        synchronous_copies(engine, &block, wanted)
    }
}

fn live(device: &Device, address: Address) -> Option<BlockInfo> {
    device.made()?.find(address)
}

/// Writes what cudaMalloc's memory would answer, where that differs from what
/// the driver says of mapped memory.
///
/// # Safety
/// `value` points to what the driver's contract says for the attribute.
unsafe fn answer(engine: &Engine, block: &BlockInfo, attribute: u32, value: *mut c_void) {
    let wide = match attribute {
        attribute::CONTEXT => Some(block.context.0),
        attribute::BUFFER_ID | attribute::MEMORY_BLOCK_ID => Some(OUR_IDS | block.id),
        attribute::RANGE_START_ADDR | attribute::MAPPING_BASE_ADDR => Some(block.base),
        attribute::RANGE_SIZE | attribute::MAPPING_SIZE => Some(block.bytes),
        attribute::ALLOWED_HANDLE_TYPES | attribute::MEMPOOL_HANDLE => Some(0),
        _ => None,
    };
    // SAFETY: pointers, sizes, ids and handle types are 64 bits.
    unsafe {
        if let Some(wide) = wide {
            return value.cast::<u64>().write_unaligned(wide);
        }
    }
    // SAFETY: booleans are int (as the driver writes them), flags unsigned int.
    unsafe {
        match attribute {
            attribute::IS_LEGACY_CUDA_IPC_CAPABLE | attribute::MAPPED => write_bool(value, true),
            attribute::SYNC_MEMOPS => {
                let on = synchronous(engine, block).unwrap_or(false);
                write_bool(value, on);
            }
            _ => {}
        }
    }
}

unsafe fn write_bool(value: *mut c_void, on: bool) {
    // SAFETY: the caller's promise.
    unsafe { value.cast::<u8>().write(on.into()) };
}

fn synchronous(engine: &Engine, block: &BlockInfo) -> Option<bool> {
    let flags_of = engine.calls.ctx_flags?;
    let mut flags = 0;
    // SAFETY: the pointer is valid for the call.
    let code = engine
        .calls
        .within(block.context, || unsafe { flags_of(&mut flags) });
    (code == Ok(Code::SUCCESS)).then_some(flags & CTX_SYNC_MEMOPS != 0)
}

fn synchronous_copies(engine: &Engine, block: &BlockInfo, wanted: bool) -> Code {
    let (Some(flags_of), Some(set_flags)) = (engine.calls.ctx_flags, engine.calls.ctx_set_flags)
    else {
        return Code::NOT_SUPPORTED;
    };
    let set = || {
        let mut flags = 0;
        // SAFETY: the pointer is valid for the call; the flags written back
        // are the context's own with one more.
        unsafe {
            match flags_of(&mut flags) {
                // Switching off is remembered by nobody else's memory, so
                // the context keeps it: never weaker than asked.
                Code::SUCCESS if wanted => set_flags(flags | CTX_SYNC_MEMOPS),
                code => code,
            }
        }
    };
    engine
        .calls
        .within(block.context, set)
        .unwrap_or_else(|code| code)
}
