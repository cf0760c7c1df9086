//! The size to whose multiples the driver rounds a row of `cuMemAllocPitch`,
//! and the allocation of one element by which it was learned. The driver's free
//! of it would wait for the context in which it was made, so it is kept until the
//! program's own call has waited for that one, or finds it at rest, and never longer
//! than that: what the driver has ended may be somebody else's memory by now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::lock;

use crate::driver::calls::Calls;

/// What is known of the rows of a device.
#[derive(Default)]
pub struct Pitch {
    /// In bytes; 0 while it is not known.
    unit: AtomicU64,
    /// Held while the driver allocates or frees it, so that there is one.
    probe: Mutex<Option<Probe>>,
}

/// The driver's memory, of which nobody else knows, and the context that it is in.
pub struct Probe(Address, Context);

impl Pitch {
    /// Was the driver asked?
    pub fn is_known(&self) -> bool {
        self.unit.load(Ordering::Relaxed) != 0
    }

    /// The size in bytes; `None` where it is no power of two, or not known.
    pub fn unit(&self) -> Option<u64> {
        let unit = self.unit.load(Ordering::Relaxed);
        unit.is_power_of_two().then_some(unit)
    }

    /// Asks the driver, unless another thread has meanwhile: `ask` allocates one
    /// element in the current context, which is given, and writes its address and pitch.
    /// Fails with its code.
    pub fn learn(
        &self,
        current: Context,
        ask: impl FnOnce(*mut Address, *mut usize) -> Code,
    ) -> Code {
        let mut probe = self.lock();
        if self.is_known() {
            return Code::SUCCESS;
        }
        let (mut address, mut pitch) = (0, 0);
        let code = ask(&raw mut address, &raw mut pitch);
        if code == Code::SUCCESS {
            *probe = Some(Probe(address, current));
            self.unit.store(pitch as u64, Ordering::Relaxed);
        }
        code
    }

    /// Frees what was allocated to ask if it is in a context that was waited for just now.
    /// Another thread that has it in hand is not waited for.
    pub fn free_probe(&self, calls: &Calls, waited: Context) {
        if !self.is_known() {
            return;
        }
        if let Ok(mut probe) = self.probe.try_lock()
            && let Some(Probe(address, _)) = probe.take_if(|probe| probe.1 == waited)
        {
            // A capture may have begun meanwhile, which would be lost.
            calls.relaxed(|| {
                // SAFETY: allocated for this, and its context has not ended.
                unsafe { (calls.mem_free)(address) };
            });
        }
    }

    /// The context of what was allocated to ask.
    pub fn probed(&self) -> Option<Context> {
        let probe = self.probe.try_lock().ok()?;
        probe.as_ref().map(|probe| probe.1)
    }

    /// A context is about to end, maybe the one of this memory, or that of which its own is
    /// a view: nobody frees it any more, it ends with that one.
    pub fn leave_probe(&self, context: Context, had_views: bool) -> Option<Probe> {
        self.lock().take_if(|probe| had_views || probe.1 == context)
    }

    /// The context did not end after all.
    pub fn keep_probe(&self, context: Context, probe: Option<Probe>) {
        // Another one may have ended meanwhile.
        if let Some(probe) = probe.filter(|probe| probe.1 == context) {
            *self.lock() = Some(probe);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Probe>> {
        lock::lock(&self.probe)
    }
}
