//! A shared library opened at run time, for the command line. The preloaded
//! library does not use it: a lookup there would meet its own hooks.

use std::ffi::{CStr, c_void};

/// An opened library. It stays loaded until the process ends, so what was
/// looked up in it never dangles.
pub struct Library(*mut c_void);

impl Library {
    /// Opens a library by the name that the loader searches, or says why it
    /// cannot (`dlopen`, `dlerror`).
    pub fn open(name: &CStr) -> Result<Self, String> {
        // SAFETY: `name` ends with a zero byte; a library's constructors run,
        // which is what opening one means.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror gives null or a string that lives until the next
            // dl call of this thread; it is copied before that.
            let text = unsafe {
                let text = libc::dlerror();
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            };
            return Err(text.unwrap_or_else(|| "dlopen failed".to_owned()));
        }
        Ok(Self(handle))
    }

    /// The address of a symbol (`dlsym`); null where the library lacks it.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle came from dlopen and was never closed.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Looks a function up (`dlsym`); `None` where the library lacks it.
    ///
    /// # Safety
    ///
    /// `F` is the function's type, as an `extern "C"` function pointer.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.symbol(name);
        // SAFETY: not null, of a pointer's size, and of type `F` by the
        // caller's promise.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}
