//! Where memory with a name is wanted, and where it then is: a context and its device.

use memcuda_core::driver::{Address, Code, Context, Driver};
use memcuda_core::pool::Attachment;
use memcuda_core::share::protocol::{Backend, DeviceId, Entry, Spec};

use super::{Failure, Wanted, primary};
use crate::engine::Engine;
use crate::engine::device::Device;
use crate::{pool, share};

/// Where memory is wanted.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The context that is current where it is wanted, [`NONE`] where none is of that device.
    pub asked: Context,
    /// The context that the mapping ends with; [`NONE`] as long as none is settled.
    pub context: Context,
    /// The context's device.
    pub device: &'a Device,
}

/// No context.
pub const NONE: Context = Context(0);

impl<'a> Place<'a> {
    /// In the current context.
    pub fn current(context: Context, device: &'a Device) -> Self {
        Self {
            asked: context,
            context,
            device,
        }
    }

    /// On a device of which no context is current.
    pub fn without_context(device: &'a Device) -> Self {
        Self {
            asked: NONE,
            context: NONE,
            device,
        }
    }

    /// The same with a context: that of the device which every runtime has there, if none is
    /// current.
    pub fn settled(self, engine: &Engine) -> Result<Self, Failure> {
        match self.context {
            NONE => self.on_primary(engine, self.device),
            _ => Ok(self),
        }
    }

    /// Where memory that is there is mapped: on its own device, for that is where programs work
    /// with it. The driver's own allocation is opened where it is wanted, and so is what is on a
    /// device that the process does not see.
    pub fn for_memory(self, engine: &'a Engine, entry: &Entry) -> Result<Self, Failure> {
        match share::device(engine, entry.spec.device) {
            Some(home) if self.context == NONE => self.on_primary(engine, home),
            Some(home)
                if home.ordinal != self.device.ordinal && entry.spec.backend == Backend::Vmm =>
            {
                self.on_primary(engine, home)
            }
            _ => self.settled(engine),
        }
    }

    fn on_primary(self, engine: &Engine, device: &'a Device) -> Result<Self, Failure> {
        let context = primary::of(engine, device)?;
        Ok(Self {
            context,
            device,
            ..self
        })
    }

    /// The current context where the memory is mapped in another one: it may use it, too.
    pub fn beside(&self) -> Option<Context> {
        beside(self.asked, self.context)
    }

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

/// A context that memory was wanted in, unless it is mapped in that one.
pub fn beside(asked: Context, context: Context) -> Option<Context> {
    (asked != NONE && asked != context).then_some(asked)
}
