//! Modules and libraries: device memory that code takes. Nothing in them can
//! run; they only take their share, so that programs can run out of memory
//! with them. A library takes it when it is first used in a context.

use std::ffi::{CStr, c_char};

use crate::abi::{Answer, Code};
use crate::arena::GRANULE;
use crate::entry::{api, must_put};
use crate::state::Sim;

/// What has the handle of a module or a library.
#[derive(Clone, Copy)]
pub enum Loaded {
    /// Code in the memory of a device.
    Module(Place),
    /// A library, and the module that it became in a context.
    Library(Option<u64>),
}

/// Where a module lies: one granule, whatever its size.
#[derive(Clone, Copy)]
pub struct Place {
    device: usize,
    offset: u64,
}

impl Sim {
    fn load(&mut self, device: usize) -> Result<u64, Code> {
        let arena = &mut self.devices[device].arena;
        let offset = arena.take_granules(GRANULE, &mut self.ledger)?;
        let handle = self.number(0x6300_1000_0000);
        let place = Place { device, offset };
        self.loaded.insert(handle, Loaded::Module(place));
        Ok(handle)
    }

    fn load_module(&mut self, out: *mut u64, image_is_null: bool) -> Answer {
        let device = self.current_device()?;
        if out.is_null() || image_is_null {
            return Err(Code::INVALID_VALUE);
        }
        let handle = self.load(device)?;
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }

    fn load_library(&mut self, out: *mut u64, code_is_null: bool) -> Answer {
        if out.is_null() || code_is_null {
            return Err(Code::INVALID_VALUE);
        }
        let handle = self.number(0x6300_2000_0000);
        self.loaded.insert(handle, Loaded::Library(None));
        // SAFETY: the caller's pointer, not null.
        unsafe { must_put(out, handle) }
    }

    /// The module of a library in the current context.
    fn module_of(&mut self, library: u64) -> Result<u64, Code> {
        let device = self.current_device()?;
        match self.loaded.get(&library) {
            Some(Loaded::Library(Some(module))) => Ok(*module),
            Some(Loaded::Library(None)) => {
                let module = self.load(device)?;
                self.loaded.insert(library, Loaded::Library(Some(module)));
                Ok(module)
            }
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    fn unload(&mut self, module: u64) -> Answer {
        let Some(Loaded::Module(place)) = self.loaded.get(&module).copied() else {
            return Err(Code::INVALID_HANDLE);
        };
        self.refuse_unsafe()?;
        self.drain_device(place.device)?;
        self.loaded.remove(&module);
        let arena = &mut self.devices[place.device].arena;
        arena.give_granules(place.offset, GRANULE, &mut self.ledger);
        Ok(())
    }

    fn is_module(&self, handle: u64) -> bool {
        matches!(self.loaded.get(&handle), Some(Loaded::Module(_)))
    }
}

/// A file's name that a program passed: the error where there is none.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn check_file(name: *const c_char) -> Answer {
    if name.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: by the function's own contract.
    let path = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    match std::path::Path::new(path.as_ref()).is_file() {
        true => Ok(()),
        false => Err(Code::FILE_NOT_FOUND),
    }
}

api! { plain EXPORTS |sim|
    fn cuModuleLoad(out: *mut u64, file: *const c_char) {
        // SAFETY: the caller's string.
        unsafe { check_file(file)? };
        sim.load_module(out, false)
    }
    fn cuModuleLoadData(out: *mut u64, image: usize) {
        sim.load_module(out, image == 0)
    }
    fn cuModuleLoadDataEx(out: *mut u64, image: usize, _count: u32, _options: usize, _values: usize) {
        sim.load_module(out, image == 0)
    }
    fn cuModuleUnload(module: u64) {
        sim.unload(module)
    }
    fn cuModuleGetFunction(out: *mut u64, module: u64, name: *const c_char) {
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if !sim.is_module(module) {
            return Err(Code::INVALID_HANDLE);
        }
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, module) }
    }
    fn cuFuncLoad(function: u64) {
        if sim.is_module(function) { Ok(()) } else { Err(Code::INVALID_HANDLE) }
    }
    fn cuLibraryLoadData(
        out: *mut u64, code: usize, _jit: usize, _jit_values: usize, _jit_count: u32,
        _options: usize, _values: usize, _count: u32,
    ) {
        sim.load_library(out, code == 0)
    }
    fn cuLibraryLoadFromFile(
        out: *mut u64, file: *const c_char, _jit: usize, _jit_values: usize, _jit_count: u32,
        _options: usize, _values: usize, _count: u32,
    ) {
        // SAFETY: the caller's string.
        unsafe { check_file(file)? };
        sim.load_library(out, false)
    }
    fn cuLibraryUnload(library: u64) {
        let Some(Loaded::Library(module)) = sim.loaded.get(&library).copied() else {
            return Err(Code::INVALID_HANDLE);
        };
        module.map_or(Ok(()), |module| sim.unload(module))?;
        sim.loaded.remove(&library);
        Ok(())
    }
    fn cuLibraryGetModule(out: *mut u64, library: u64) {
        let module = sim.module_of(library)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, module) }
    }
    fn cuLibraryGetKernel(out: *mut u64, library: u64, name: *const c_char) {
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        match sim.loaded.get(&library) {
            // SAFETY: the caller's pointer.
            Some(Loaded::Library(_)) => unsafe { must_put(out, library) },
            _ => Err(Code::INVALID_HANDLE),
        }
    }
    fn cuKernelGetFunction(out: *mut u64, kernel: u64) {
        let module = sim.module_of(kernel)?;
        // SAFETY: the caller's pointer.
        unsafe { must_put(out, module) }
    }
}
