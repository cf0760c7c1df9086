//! `memcuda_options`: what a program passes, checked.

use std::ffi::{CStr, c_char};

use memcuda_core::names::{Dtype, MOST_EXTENTS, Name, bytes_of};
use memcuda_core::share::protocol::{Backend, Mode};

use super::place::CURRENT;
use crate::names::{Failure, Wanted};

/// `memcuda_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    size: u32,
    flags: u32,
    bytes: u64,
    /// Ordinal, or [`CURRENT`].
    pub device: i32,
    rank: u32,
    shape: *const u64,
    dtype: *const c_char,
    wait_us: u64,
}

const _: () = assert!(size_of::<Options>() == 48);

const READ_ONLY: u32 = 1 << 0;
const ZEROED: u32 = 1 << 1;
const HIDDEN: u32 = 1 << 2;
const PERSIST: u32 = 1 << 3;
const CUDA_IPC: u32 = 1 << 4;
const UNNAMED: u32 = 1 << 5;
const AWAIT: u32 = 1 << 6;
const ALL: u32 = (1 << 7) - 1;
/// `MEMCUDA_MOST_RANK`.
pub const MOST_RANK: usize = 32;
const _: () = assert!(MOST_RANK == MOST_EXTENTS);

impl Options {
    const DEFAULT: Self = Self {
        size: size_of::<Self>() as u32,
        flags: 0,
        bytes: 0,
        device: CURRENT,
        rank: 0,
        shape: std::ptr::null(),
        dtype: std::ptr::null(),
        wait_us: 5_000_000,
    };

    /// What a program passed: null stands for all defaults.
    ///
    /// # Safety
    /// Null, or as large as its first field says.
    pub unsafe fn read(options: *const Self) -> Result<Self, Failure> {
        if options.is_null() {
            return Ok(Self::DEFAULT);
        }
        // SAFETY: every version has this field.
        let size = unsafe { options.cast::<u32>().read_unaligned() };
        if size as usize != size_of::<Self>() {
            return Err(Failure::Invalid(format!(
                "options of {size} bytes; accepted: {}, their size field is sizeof(memcuda_options)",
                size_of::<Self>()
            )));
        }
        // SAFETY: as large as this, by its size.
        let options = unsafe { options.read_unaligned() };
        let unknown = options.flags & !ALL;
        if unknown != 0 {
            return Err(Failure::Invalid(format!(
                "flags {unknown:#x} are not known"
            )));
        }
        Ok(options)
    }

    /// Is it to be written?
    pub fn write(&self) -> bool {
        self.flags & READ_ONLY == 0
    }

    /// As the rest of the library has it.
    ///
    /// # Safety
    /// The pointers are null or valid, a shape of as many extents as it says.
    pub unsafe fn wanted(&self, name: Name, mode: Mode) -> Result<Wanted, Failure> {
        // SAFETY: by the function's own contract.
        let (dtype, shape) = unsafe { (self.dtype()?, self.shape()?) };
        let mut bytes = self.bytes;
        if let (Some(dtype), false) = (dtype, shape.is_empty()) {
            let needed = bytes_of(dtype, &shape).map_err(|e| Failure::Invalid(e.to_string()))?;
            if bytes != 0 && bytes != needed {
                return Err(Failure::Invalid(format!(
                    "{bytes} bytes, but {shape:?} of {dtype} is {needed}"
                )));
            }
            bytes = needed;
        } else if !shape.is_empty() {
            return Err(Failure::Invalid(
                "a shape without a dtype; accepted: both, or neither".to_owned(),
            ));
        }
        let is = |flag: u32| self.flags & flag != 0;
        if mode == Mode::Create && is(READ_ONLY) {
            return Err(Failure::Invalid(
                "MEMCUDA_READ_ONLY does not go with a new name, which nobody could write"
                    .to_owned(),
            ));
        }
        if is(CUDA_IPC) && is(READ_ONLY | HIDDEN | PERSIST) {
            return Err(Failure::Invalid(
                "MEMCUDA_CUDA_IPC goes with none of MEMCUDA_READ_ONLY, _HIDDEN, _PERSIST"
                    .to_owned(),
            ));
        }
        Ok(Wanted {
            name,
            mode,
            bytes,
            dtype,
            shape,
            write: self.write(),
            zeroed: is(ZEROED),
            hidden: is(HIDDEN),
            persist: is(PERSIST),
            or_unnamed: is(UNNAMED),
            backend: if is(CUDA_IPC) {
                Backend::CudaIpc
            } else {
                Backend::Vmm
            },
            here: self.device != CURRENT,
            wait_us: self.wait_us,
            awaited: is(AWAIT),
        })
    }

    unsafe fn dtype(&self) -> Result<Option<Dtype>, Failure> {
        if self.dtype.is_null() {
            return Ok(None);
        }
        // SAFETY: by the contract of `wanted`.
        let text = unsafe { CStr::from_ptr(self.dtype) }.to_string_lossy();
        let dtype = text
            .parse()
            .map_err(|e: memcuda_core::error::Error| e.to_string());
        dtype.map(Some).map_err(Failure::Invalid)
    }

    unsafe fn shape(&self) -> Result<Vec<u64>, Failure> {
        let rank = self.rank as usize;
        if rank > MOST_RANK || (rank > 0 && self.shape.is_null()) {
            return Err(Failure::Invalid(format!(
                "a shape of {rank} extents; accepted: up to {MOST_RANK}, where they are"
            )));
        }
        // SAFETY: by the contract of `wanted`.
        Ok((0..rank)
            .map(|index| unsafe { self.shape.add(index).read_unaligned() })
            .collect())
    }
}

/// The text of a name that a program passed.
///
/// # Safety
/// Null, or a string.
pub unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    if name.is_null() {
        return Err(Failure::Invalid("the name is a null pointer".to_owned()));
    }
    // SAFETY: by the function's own contract.
    let text = unsafe { CStr::from_ptr(name) }.to_str();
    text.map_err(|_| Failure::Invalid("the name is not UTF-8".to_owned()))
}

/// A valid name.
///
/// # Safety
/// As for [`text`].
pub unsafe fn name(name: *const c_char) -> Result<Name, Failure> {
    // SAFETY: by the function's own contract.
    Name::new(unsafe { text(name) }?).map_err(|error| Failure::Invalid(error.to_string()))
}
