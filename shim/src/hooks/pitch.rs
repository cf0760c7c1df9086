//! `cuMemAllocPitch`: rows of a pitch that is the driver's own, which programs
//! may have computed with before.

use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::units::align_up;

use super::{foreign, memory};
use crate::engine::Engine;
use crate::engine::boundary;
use crate::engine::device::Device;
use crate::record::Caller;
use crate::room::{Place, with_room};

type Real = unsafe extern "C" fn(*mut Address, *mut usize, usize, usize, u32) -> Code;

crate::hooks! {
    /// `cuMemAllocPitch_v2`: allocates `height` rows of `width` bytes.
    cuMemAllocPitch_v2 ["cuMemAllocPitch" since 3020] (
        out: *mut Address, pitch: *mut usize, width: usize, height: usize, element: u32,
    ) |real, engine| {
        let plain = || {
            with_room(engine, || foreign::current(engine), || {
                // SAFETY: the program's own call, passed on.
                unsafe { real(out, pitch, width, height, element) }
            })
        };
        let valid = matches!(element, 4 | 8 | 16) && width != 0 && height != 0;
        if out.is_null() || pitch.is_null() || !valid {
            return plain();
        }
        if !engine.lends() {
            let code = plain();
            if code == Code::SUCCESS && let Ok((context, device)) = engine.current() {
                // SAFETY: the real call has just written both.
                let (address, bytes) = unsafe { (*out, *pitch as u64 * height as u64) };
                let request = memory::request(engine, context, bytes);
                engine.plain_allocated(device, &request, address, Caller::UNKNOWN);
            }
            return code;
        }
        let Ok((context, device)) = engine.current() else { return plain() };
        // SAFETY: not null, and the program's to write: as the driver does,
        // before anything can fail.
        unsafe {
            *out = 0;
            *pitch = 0;
        }
        let rows = unit(engine, context, device, real).and_then(|unit| align_up(width as u64, unit));
        let Some((row, bytes)) =
            rows.and_then(|row| Some((row, row.checked_mul(height as u64)?)))
        else {
            return plain();
        };
        // SAFETY: likewise; the driver tells it whether there is memory or not.
        unsafe { *pitch = row as usize };
        match memory::lend_unidentified(engine, bytes) {
            Some(Ok(address)) => {
                // SAFETY: likewise.
                unsafe { *out = address };
                Code::SUCCESS
            }
            Some(Err(code)) => {
                // A context that is broken tells none.
                if code.is_sticky() {
                    // SAFETY: likewise.
                    unsafe { *pitch = 0 };
                }
                code
            }
            None => plain(),
        }
    }
}

/// The size to whose multiples the driver rounds a row: the pitch of a row of
/// one element, asked once per device by a real allocation. `None` if that is
/// no power of two, or cannot be asked now.
fn unit(engine: &Engine, current: Context, device: &Device, real: Real) -> Option<u64> {
    if !device.pitch.is_known() {
        // SAFETY: the pointers are valid for the call.
        let ask = |at, row| unsafe { real(at, row, 4, 1, 4) };
        let place = || Place::Device(device);
        with_room(engine, place, || device.pitch.learn(current, ask));
        boundary::unanswered();
    }
    device.pitch.unit()
}
