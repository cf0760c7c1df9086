//! `memcuda_info`: what is known of a name, as a program gets it.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use memcuda_core::names::Name;
use memcuda_core::share::protocol::{Backend, Entry, Persist, State};

use super::options::MOST_RANK;
use crate::engine::Engine;
use crate::names::{Failure, table::Mapped, versions};
use crate::share;

/// `memcuda_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    size: u32,
    flags: u32,
    name: [c_char; Name::MOST_BYTES + 8],
    generation: [u8; 16],
    device_uuid: [u8; 16],
    device: i32,
    state: u32,
    address: u64,
    bytes: u64,
    mapped: u64,
    version: u64,
    persist_until_s: u64,
    created_us: u64,
    references: u64,
    maker_pid: u32,
    maker_uid: u32,
    dtype: [c_char; 8],
    rank: u32,
    holders: u32,
    shape: [u64; MOST_RANK],
}

const _: () = assert!(size_of::<Info>() == 592);

const SEALED: u32 = 2;

const READ_ONLY: u32 = 1 << 0;
const PERSIST: u32 = 1 << 3;
const CUDA_IPC: u32 = 1 << 4;
const MADE: u32 = 1 << 7;

/// Copies a text, and leaves the zero byte at its end.
fn put(into: &mut [c_char], text: &str) {
    let room = into.len() - 1;
    for (place, byte) in into[..room].iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
}

impl Info {
    /// Of a name that the keeper speaks of.
    pub fn of(engine: &Engine, entry: &Entry) -> Self {
        let spec = &entry.spec;
        let persist_until_s = match entry.persist {
            Persist::No => 0,
            Persist::Yes => u64::MAX,
            Persist::Until(second) => second,
        };
        let persist = if persist_until_s > 0 { PERSIST } else { 0 };
        let legacy = if spec.backend == Backend::CudaIpc {
            CUDA_IPC
        } else {
            0
        };
        let device = share::device(engine, spec.device);
        let mut info = Self {
            size: size_of::<Self>() as u32,
            flags: persist | legacy,
            name: [0; Name::MOST_BYTES + 8],
            generation: entry.generation.0,
            device_uuid: spec.device.0,
            device: device.map_or(-1, |device| device.ordinal as i32),
            state: match entry.state {
                State::Creating => 0,
                State::Ready => 1,
                State::Sealed => SEALED,
                State::Dying => 3,
            },
            address: 0,
            bytes: spec.bytes,
            mapped: entry.mapped,
            version: entry.version,
            persist_until_s,
            created_us: entry.created_us,
            references: entry.references,
            maker_pid: entry.maker.pid,
            maker_uid: entry.maker.uid,
            dtype: [0; 8],
            rank: spec.shape.len() as u32,
            holders: entry.holders.len() as u32,
            shape: [0; MOST_RANK],
        };
        put(&mut info.name, entry.name.as_ref().map_or("", Name::as_str));
        put(&mut info.dtype, spec.dtype.map_or("", |dtype| dtype.name()));
        for (place, extent) in info.shape.iter_mut().zip(&spec.shape) {
            *place = *extent;
        }
        info
    }

    /// Of what this process has open; `made` by the opening that is asked for?
    pub fn of_mapped(engine: &Engine, mapped: &Mapped, made: bool) -> Self {
        let mut info = Self::of(engine, &mapped.entry);
        if made {
            info.flags |= MADE;
        }
        if mapped.sealed.load(Ordering::Relaxed) {
            info.state = SEALED;
        }
        info.address = mapped.address;
        info.version = versions::known(mapped);
        if !mapped.spot.write {
            info.flags |= READ_ONLY;
        }
        info
    }

    /// Writes as much of it as the program has room for.
    ///
    /// # Safety
    /// `out` is null, or as large as its first field says.
    pub unsafe fn write(&self, out: *mut Self) -> Result<(), Failure> {
        /// Up to here it is of every version.
        const LEAST: usize = size_of::<Info>();
        let size = match out.is_null() {
            true => 0,
            // SAFETY: not null, and every version has this field.
            false => unsafe { out.cast::<u32>().read_unaligned() },
        };
        if (size as usize) < LEAST {
            return Err(Failure::Invalid(format!(
                "room for an info of {size} bytes; accepted: {LEAST}, its size field is \
                 sizeof(memcuda_info)"
            )));
        }
        // SAFETY: as large as this, by its size.
        unsafe { out.write_unaligned(*self) };
        Ok(())
    }
}
