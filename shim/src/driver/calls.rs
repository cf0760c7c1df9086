//! The driver calls that the hooks make themselves, beside those that the pool
//! makes: always the real functions.

use std::ffi::c_void;

use memcuda_core::driver::thread::restore;
use memcuda_core::driver::{Code, Context, Stream, sys};

use crate::driver::shapes::Block;

/// A memory pool of the driver (`CUmemoryPool`).
pub type MemPool = u64;

/// The driver's handle of CUDA IPC (`CUipcMemHandle`), passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcBytes(pub [u8; 64]);

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: to open such a handle the driver takes no other flags.
pub const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

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
        "cuStreamIsCapturing" stream_is_capturing(Stream, *mut u32);
        "cuMemAlloc_v2" mem_alloc(*mut u64, usize);
        "cuMemFree_v2" mem_free(u64);
        "cuStreamCreate" stream_create(*mut Stream, u32);
        "cuStreamQuery" stream_query(Stream);
        "cuStreamDestroy_v2" stream_destroy(Stream);
        "cuStreamSynchronize" stream_synchronize(Stream);
    }
    optional {
        "cuDeviceGetUuid" device_uuid(*mut [u8; 16], i32);
        // Of a slice of a device (MIG), where the older one is of the whole.
        "cuDeviceGetUuid_v2" device_uuid_of_slice(*mut [u8; 16], i32);
        "cuDeviceGetName" device_name(*mut u8, i32, i32);
        "cuDeviceTotalMem_v2" device_total(*mut usize, i32);
        "cuStreamGetCtx" stream_context(Stream, *mut Context);
        "cuStreamGetCtx_v2" stream_contexts(Stream, *mut Context, *mut u64);
        "cuDevicePrimaryCtxGetState" primary_state(i32, *mut u32, *mut i32);
        "cuDevicePrimaryCtxRetain" primary_retain(*mut Context, i32);
        "cuDevicePrimaryCtxRelease_v2" primary_release(i32);
        "cuCtxFromGreenCtx" from_green(*mut Context, u64);
        "cuCtxDisablePeerAccess" disable_peer(Context);
        "cuDeviceGetMemPool" mem_pool(*mut MemPool, i32);
        "cuDeviceGetDefaultMemPool" default_mem_pool(*mut MemPool, i32);
        "cuMemPoolGetAttribute" mem_pool_attribute(MemPool, u32, *mut c_void);
        "cuMemPoolGetAccess" mem_pool_access(*mut u32, MemPool, *const sys::MemLocation);
        "cuCtxSetFlags" ctx_set_flags(u32);
        "cuCtxGetFlags" ctx_flags(*mut u32);
        "cuThreadExchangeStreamCaptureMode" capture_mode(*mut u32);
        "cuPointerGetAttribute" pointer_attribute(*mut c_void, u32, u64);
        "cuIpcGetMemHandle" ipc_get(*mut IpcBytes, u64);
        "cuIpcOpenMemHandle_v2" ipc_open(*mut u64, IpcBytes, u32);
        "cuIpcCloseMemHandle" ipc_close(u64);
        "cuMemHostRegister_v2" host_register(*mut c_void, usize, u32);
        "cuMemHostUnregister" host_unregister(*mut c_void);
        "cuMemHostGetDevicePointer_v2" host_address(*mut u64, *mut c_void, u32);
        "cuStreamWriteValue64_v2" write_value(Stream, u64, u64, u32);
        "cuStreamWaitValue64_v2" wait_value(Stream, u64, u64, u32);
        "cuMemcpyPeer" copy_peer(u64, Context, u64, Context, usize);
        "cuMemcpyPeer_ptds" copy_peer_ptds(u64, Context, u64, Context, usize);
        "cuMemcpyPeerAsync" copy_peer_async(u64, Context, u64, Context, usize, Stream);
        "cuMemcpy3DPeer" copy_block(*const Block);
        "cuMemcpy3DPeer_ptds" copy_block_ptds(*const Block);
        "cuMemcpy3DPeerAsync" copy_block_async(*const Block, Stream);
    }
}

impl Calls {
    /// The context that is current on this thread; `INVALID_CONTEXT` where
    /// there is none.
    pub fn current(&self) -> Result<Context, Code> {
        let mut context = Context::default();
        // SAFETY: the pointer is valid for the call.
        unsafe { (self.ctx_current)(&mut context) }.ok()?;
        if context == Context::default() {
            return Err(Code::INVALID_CONTEXT);
        }
        Ok(context)
    }

    /// The device of the current context.
    pub fn current_device(&self) -> Result<i32, Code> {
        let mut device = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { (self.ctx_device)(&mut device) }.ok()?;
        Ok(device)
    }

    /// Runs `work` with `context` current.
    pub fn within<T>(&self, context: Context, work: impl FnOnce() -> T) -> Result<T, Code> {
        if self.current() == Ok(context) {
            return Ok(work());
        }
        // SAFETY: a context that is gone is an error of the call.
        unsafe { (self.ctx_push)(context) }.ok()?;
        let result = work();
        let mut popped = Context::default();
        // SAFETY: pops what was pushed above on this thread.
        restore(|| unsafe { (self.ctx_pop)(&mut popped) });
        Ok(result)
    }

    /// The context that a stream belongs to (no default one); the current one
    /// where the driver cannot tell of any stream.
    pub fn context_of(&self, stream: Stream) -> Result<Context, Code> {
        let Some(stream_context) = self.stream_context else {
            return self.current();
        };
        let mut context = Context::default();
        // SAFETY: the pointer is valid for the call; a stream that is gone is
        // the program's error, as in its own call.
        match unsafe { stream_context(stream, &mut context) } {
            Code::NOT_SUPPORTED => self.view_of_stream(stream),
            code => code.ok().map(|()| context),
        }
    }

    /// The view that a stream of a green context belongs to: before CUDA 13 the driver tells
    /// the green context alone.
    #[cold]
    fn view_of_stream(&self, stream: Stream) -> Result<Context, Code> {
        let (mut whole, mut green) = (Context::default(), 0);
        let contexts = self.stream_contexts.ok_or(Code::NOT_SUPPORTED)?;
        // SAFETY: the pointers are valid for the call.
        unsafe { contexts(stream, &mut whole, &mut green) }.ok()?;
        match green {
            0 => Ok(whole),
            green => self.view_of(green),
        }
    }

    /// The context that stands for a green one.
    pub fn view_of(&self, green: u64) -> Result<Context, Code> {
        let mut context = Context::default();
        let view = self.from_green.ok_or(Code::NOT_FOUND)?;
        // SAFETY: the pointer is valid for the call.
        unsafe { view(&mut context, green) }.ok()?;
        Ok(context)
    }

    /// Is a device's primary context active? A driver that cannot tell is
    /// taken to say yes: what may be in use is left alone.
    pub fn primary_is_active(&self, device: i32) -> Result<bool, Code> {
        let (mut flags, mut active) = (0, 1);
        if let Some(state) = self.primary_state {
            // SAFETY: the pointers are valid for the call.
            unsafe { state(device, &mut flags, &mut active) }.ok()?;
        }
        Ok(active != 0)
    }

    /// The primary context of a device, if it is active. The driver tells only
    /// who retains it, and the release may be the last one where another thread releases
    /// meanwhile: the caller holds `primaries`.
    pub fn primary(&self, device: i32) -> Result<Option<Context>, Code> {
        let (Some(retain), Some(release)) = (self.primary_retain, self.primary_release) else {
            return Ok(None);
        };
        if !self.primary_is_active(device)? {
            return Ok(None);
        }
        let mut context = Context::default();
        // SAFETY: the pointer is valid for the call, and what was retained is
        // released.
        unsafe {
            retain(&mut context, device).ok()?;
            if release(device) != Code::SUCCESS {
                release(device);
            }
        }
        Ok(Some(context))
    }

    /// Runs `work` while this thread disregards what captures forbid, without
    /// touching any.
    pub fn relaxed<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(exchange) = self.capture_mode else {
            return work();
        };
        let mut mode = sys::CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is valid for the call, which swaps the mode.
        if unsafe { exchange(&mut mode) } != Code::SUCCESS {
            return work();
        }
        let result = work();
        // SAFETY: gives the thread its own mode back.
        restore(|| unsafe { exchange(&mut mode) });
        result
    }

    /// What the driver answers this thread now to a call that a capture forbids,
    /// as it forbids an allocation and a free; the capture is lost then. It is
    /// asked by a query of a stream made for it, in the current context: that changes
    /// nothing else. The error is that no stream can be made there.
    pub fn refusal_of_captures(&self) -> Result<Option<Code>, Code> {
        const NON_BLOCKING: u32 = 1;
        if self.is_relaxed() {
            return Ok(None);
        }
        let mut stream = Stream::default();
        // SAFETY: the pointer is valid for the call, and the stream is nobody
        // else's.
        unsafe {
            (self.stream_create)(&mut stream, NON_BLOCKING).ok()?;
            let code = (self.stream_query)(stream);
            (self.stream_destroy)(stream);
            Ok((code == Code::STREAM_CAPTURE_UNSUPPORTED).then_some(code))
        }
    }

    /// One of the sums of a memory pool, an attribute of 64 bits; harmless to captures.
    pub fn mem_pool_sum(&self, pool: MemPool, attribute: u32) -> Option<u64> {
        let ask = self.mem_pool_attribute?;
        let mut sum = 0_u64;
        // SAFETY: the pointer is valid for what the call writes.
        let code = self.relaxed(|| unsafe { ask(pool, attribute, (&raw mut sum).cast()) });
        (code == Code::SUCCESS).then_some(sum)
    }

    /// Does the calling thread disregard what captures forbid?
    fn is_relaxed(&self) -> bool {
        let Some(exchange) = self.capture_mode else {
            return false;
        };
        let mut mode = sys::CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is valid for both calls; the second one restores
        // what the first one found.
        unsafe {
            if exchange(&mut mode) != Code::SUCCESS {
                return false;
            }
            let found = mode;
            restore(|| exchange(&mut mode));
            found == sys::CAPTURE_MODE_RELAXED
        }
    }

    /// Is this stream capturing, or could an operation on it disturb a capture?
    pub fn captures(&self, stream: Stream) -> Result<bool, Code> {
        match self.is_capturing(stream) {
            // The legacy stream, while a stream that blocks on it captures.
            Err(Code::STREAM_CAPTURE_IMPLICIT) => Ok(true),
            answer => answer,
        }
    }

    /// Is this stream itself capturing?
    pub fn is_capturing(&self, stream: Stream) -> Result<bool, Code> {
        let mut status = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.stream_is_capturing)(stream, &mut status) };
        code.ok().map(|()| status != 0)
    }
}
