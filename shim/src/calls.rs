//! The driver calls that the hooks make themselves, beside those that the pool
//! makes: always the real functions.

use std::ffi::c_void;

use memcuda_core::driver::{Code, Context, Stream};

/// A memory pool of the driver (`CUmemoryPool`).
pub type MemPool = u64;

memcuda_core::entry_points! {
    /// The entry points.
    pub struct Calls;
    required {
        "cuDeviceGetCount" device_count(*mut i32);
        "cuDeviceGet" device_get(*mut i32, i32);
        "cuDeviceGetAttribute" device_attribute(*mut i32, i32, i32);
        "cuCtxGetCurrent" ctx_current(*mut Context);
        "cuCtxGetDevice" ctx_device(*mut i32);
        "cuCtxPushCurrent_v2" ctx_push(Context);
        "cuCtxPopCurrent_v2" ctx_pop(*mut Context);
        "cuCtxSynchronize" ctx_synchronize();
        "cuStreamIsCapturing" stream_is_capturing(Stream, *mut u32);
        "cuMemFree_v2" mem_free(u64);
    }
    optional {
        "cuDeviceGetUuid_v2" device_uuid(*mut [u8; 16], i32);
        "cuDeviceTotalMem_v2" device_total(*mut usize, i32);
        "cuStreamGetCtx" stream_context(Stream, *mut Context);
        "cuDevicePrimaryCtxGetState" primary_state(i32, *mut u32, *mut i32);
        "cuDeviceGetMemPool" mem_pool(*mut MemPool, i32);
        "cuDeviceGetDefaultMemPool" default_mem_pool(*mut MemPool, i32);
        "cuCtxSetFlags" ctx_set_flags(u32);
        "cuCtxGetFlags" ctx_flags(*mut u32);
        "cuPointerGetAttribute" pointer_attribute(*mut c_void, u32, u64);
    }
}

impl Calls {
    /// The context that is current on this thread, if any.
    pub fn current(&self) -> Option<Context> {
        let mut context = Context::default();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.ctx_current)(&mut context) };
        (code == Code::SUCCESS && context != Context::default()).then_some(context)
    }

    /// The device of the current context.
    pub fn current_device(&self) -> Option<i32> {
        let mut device = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.ctx_device)(&mut device) };
        (code == Code::SUCCESS).then_some(device)
    }

    /// Runs `work` with `context` current.
    pub fn within<T>(&self, context: Context, work: impl FnOnce() -> T) -> Result<T, Code> {
        if self.current() == Some(context) {
            return Ok(work());
        }
        // SAFETY: a context that is gone is an error of the call.
        unsafe { (self.ctx_push)(context) }.ok()?;
        let result = work();
        let mut popped = Context::default();
        // SAFETY: pops what was pushed above on this thread.
        unsafe { (self.ctx_pop)(&mut popped) };
        Ok(result)
    }

    /// The context that a stream belongs to (no default one); the current one
    /// where the driver cannot tell.
    pub fn context_of(&self, stream: Stream) -> Option<Context> {
        let Some(stream_context) = self.stream_context else {
            return self.current();
        };
        let mut context = Context::default();
        // SAFETY: the pointer is valid for the call; a stream that is gone is
        // the program's error, as in its own call.
        match unsafe { stream_context(stream, &mut context) } {
            Code::SUCCESS => Some(context),
            _ => None,
        }
    }

    /// Is this stream capturing, or could an operation on it disturb a capture?
    pub fn captures(&self, stream: Stream) -> bool {
        let mut status = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.stream_is_capturing)(stream, &mut status) };
        code != Code::SUCCESS || status != 0
    }
}
