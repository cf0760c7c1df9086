//! Memory: allocation, copies, fills, host memory, pointers, IPC.

use std::ffi::c_void;

use crate::driver::{CopyRows, IpcMemHandle, RowsEnd};
use crate::runtime;
use crate::state::{bind, check, primary};

/// `cudaErrorInvalidValue`.
const INVALID_VALUE: u32 = 1;
/// `cudaMemcpyKind`.
const HOST_TO_DEVICE: u32 = 1;
const DEVICE_TO_HOST: u32 = 2;
const DEVICE_TO_DEVICE: u32 = 3;
/// `cudaErrorInvalidPitchValue`.
const INVALID_PITCH: u32 = 12;
/// `cudaErrorInvalidMemcpyDirection`.
const INVALID_DIRECTION: u32 = 21;

/// `cudaExtent`.
#[repr(C)]
pub struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

/// `cudaPitchedPtr`.
#[repr(C)]
pub struct PitchedPtr {
    at: u64,
    pitch: usize,
    row_bytes: usize,
    rows: usize,
}

/// `cudaPointerAttributes`.
#[repr(C)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
    reserved: [i64; 8],
}

/// The driver's form of a copy of rows.
fn rows(
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: u32,
) -> Result<CopyRows, u32> {
    if kind > 4 {
        return Err(INVALID_DIRECTION);
    }
    if width > to_pitch || width > from_pitch {
        return Err(INVALID_PITCH);
    }
    Ok(CopyRows {
        from: RowsEnd::new(from, from_pitch),
        to: RowsEnd::new(to, to_pitch),
        width,
        height,
    })
}

runtime! { with_context |driver|
    fn cudaMalloc(out: *mut u64, bytes: usize) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        if bytes == 0 {
            out.write(0);
            return Ok(());
        }
        check((driver.mem_alloc)(out, bytes))
    }
    fn cudaFree(at: u64) {
        check((driver.mem_free)(at))
    }
    fn cudaMallocPitch(out: *mut u64, pitch: *mut usize, width: usize, height: usize) {
        if out.is_null() || pitch.is_null() {
            return Err(INVALID_VALUE);
        }
        if width == 0 || height == 0 {
            out.write(0);
            pitch.write(0);
            return Ok(());
        }
        check((driver.mem_alloc_pitch)(out, pitch, width, height, 4))
    }
    fn cudaMallocManaged(out: *mut u64, bytes: usize, flags: u32) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        check((driver.mem_alloc_managed)(out, bytes, flags))
    }
    fn cudaMalloc3D(out: *mut PitchedPtr, extent: Extent) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let (mut at, mut pitch, mut code) = (0, 0, 0);
        if extent.width != 0 && extent.height != 0 && extent.depth != 0 {
            let rows = extent.height.checked_mul(extent.depth).ok_or(INVALID_VALUE)?;
            code = (driver.mem_alloc_pitch)(&mut at, &mut pitch, extent.width, rows, 4);
        }
        let out = &mut *out;
        (out.at, out.pitch) = (at, pitch);
        check(code)?;
        (out.row_bytes, out.rows) = (extent.width, extent.height);
        Ok(())
    }
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        check((driver.mem_info)(free, total))
    }
    fn cudaMemcpy | cudaMemcpy_ptds (to: u64, from: u64, bytes: usize, kind: u32) {
        if bytes == 0 {
            return Ok(());
        }
        check(match kind {
            HOST_TO_DEVICE => (driver.copy_to_device)(to, from as *mut c_void, bytes),
            DEVICE_TO_HOST => (driver.copy_to_host)(to as *mut c_void, from, bytes),
            DEVICE_TO_DEVICE => (driver.copy_on_device)(to, from, bytes),
            0 | 4 => (driver.copy)(to, from, bytes),
            _ => INVALID_DIRECTION,
        })
    }
    fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz (to: u64, from: u64, bytes: usize, kind: u32, stream: u64) {
        if kind > 4 {
            return Err(INVALID_DIRECTION);
        }
        check((driver.copy_async)(to, from, bytes, stream))
    }
    fn cudaMemcpyPeer | cudaMemcpyPeer_ptds (to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize) {
        let (there, here) = (primary(driver, to_device)?, primary(driver, from_device)?);
        check((driver.copy_peer)(to, there, from, here, bytes))
    }
    fn cudaMemcpy2D | cudaMemcpy2D_ptds (to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32) {
        let copy = rows(to, to_pitch, from, from_pitch, width, height, kind)?;
        check((driver.copy_rows)(&copy))
    }
    fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz (to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32, stream: u64) {
        let copy = rows(to, to_pitch, from, from_pitch, width, height, kind)?;
        check((driver.copy_rows_async)(&copy, stream))
    }
    fn cudaMemset | cudaMemset_ptds (at: u64, value: i32, bytes: usize) {
        check((driver.fill)(at, value as u8, bytes))
    }
    fn cudaMemsetAsync | cudaMemsetAsync_ptsz (at: u64, value: i32, bytes: usize, stream: u64) {
        check((driver.fill_async)(at, value as u8, bytes, stream))
    }
    fn cudaMemset2D | cudaMemset2D_ptds (at: u64, pitch: usize, value: i32, width: usize, height: usize) {
        check((driver.fill_rows)(at, pitch, value as u8, width, height))
    }
    fn cudaHostAlloc(out: *mut *mut c_void, bytes: usize, flags: u32) {
        check((driver.host_alloc)(out, bytes, flags))
    }
    fn cudaMallocHost(out: *mut *mut c_void, bytes: usize) {
        check((driver.host_alloc)(out, bytes, 0))
    }
    fn cudaFreeHost(at: *mut c_void) {
        check((driver.host_free)(at))
    }
    fn cudaHostRegister(at: *mut c_void, bytes: usize, flags: u32) {
        check((driver.host_register)(at, bytes, flags))
    }
    fn cudaHostUnregister(at: *mut c_void) {
        check((driver.host_unregister)(at))
    }
    fn cudaIpcGetMemHandle(out: *mut IpcMemHandle, at: u64) {
        check((driver.ipc_get)(out, at))
    }
    fn cudaIpcOpenMemHandle(out: *mut u64, handle: IpcMemHandle, flags: u32) {
        check((driver.ipc_open)(out, handle, flags))
    }
    fn cudaIpcCloseMemHandle(at: u64) {
        check((driver.ipc_close)(at))
    }
}

runtime! { with_driver |driver|
    fn cudaHostGetDevicePointer(out: *mut u64, at: *mut c_void, flags: u32) {
        if at.is_null() {
            return Err(INVALID_VALUE);
        }
        bind(driver)?;
        check((driver.host_device_pointer)(out, at, flags))
    }
    fn cudaPointerGetAttributes(out: *mut PointerAttributes, at: u64) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        // Each of the width that the driver writes: of a flag, four bytes.
        let (mut kind, mut managed, mut ordinal) = (0u32, 0u32, 0i32);
        let (mut device_pointer, mut host_pointer) = (0u64, 0u64);
        let asked = [2u32, 8, 9, 3, 4];
        let answers: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut managed).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut device_pointer).cast(),
            (&raw mut host_pointer).cast(),
        ];
        check((driver.pointer_attributes)(5, asked.as_ptr(), answers.as_ptr(), at))?;
        out.write(PointerAttributes {
            kind: if managed != 0 { 3 } else { kind as i32 },
            device: ordinal,
            device_pointer,
            // A pointer that no device knows is the host's.
            host_pointer: if kind == 0 { at } else { host_pointer },
            reserved: [0; 8],
        });
        Ok(())
    }
}

const _: () = assert!(size_of::<PointerAttributes>() == 88);
