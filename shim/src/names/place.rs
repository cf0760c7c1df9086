//! Where memory with a name is wanted: a context and its device.

use memcuda_core::driver::{Address, Code, Context, Driver};
use memcuda_core::pool::Attachment;
use memcuda_core::share::protocol::{DeviceId, Spec};

use super::{Failure, Wanted};
use crate::device::Device;
use crate::engine::Engine;
use crate::pool;

/// Where memory is wanted.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The context that the mapping ends with.
    pub context: Context,
    /// The context's device.
    pub device: &'a Device,
}

impl Place<'_> {
    /// What the keeper is told of memory that is wanted here.
    pub fn spec(&self, wanted: &Wanted) -> Result<Spec, Failure> {
        let nameless = || Failure::Invalid("the driver does not name the device".to_owned());
        Ok(Spec {
            bytes: wanted.bytes,
            dtype: wanted.dtype,
            shape: wanted.shape.clone(),
            device: DeviceId(self.device.uuid.ok_or_else(nameless)?),
            ordinal: self.device.ordinal,
            backend: wanted.backend,
        })
    }

    /// Does this work with the context current.
    pub fn within<T>(
        &self,
        engine: &Engine,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let within = engine.calls.within(self.context, work);
        within.map_err(Failure::of("cuCtxPushCurrent"))?
    }

    /// Maps memory at addresses of the pool of the device `home`; where that fails its
    /// handles are released.
    pub fn attach(
        &self,
        engine: &Engine,
        home: &Device,
        memory: Attachment,
    ) -> Result<Address, Failure> {
        let handles: Vec<_> = memory.handles.iter().map(|(handle, _)| *handle).collect();
        let mut taken = false;
        let mapped = self.within(engine, || {
            let none = Failure::Driver(Code::NOT_SUPPORTED, "virtual memory management");
            let pool = pool::of(engine, home).ok_or(none)?;
            // From here on they are the pool's, also where it fails.
            taken = true;
            pool.attach(memory).map_err(Failure::of("cuMemMap"))
        });
        if !taken {
            for handle in handles {
                let _ = engine.driver.release(handle);
            }
        }
        mapped
    }
}
