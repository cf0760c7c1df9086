//! SYNC_MEMOPS of pooled memory: who asked that copies from and to an
//! allocation be over when their call returns. The driver grants that for
//! mapped memory to whole contexts only, so a context has the flag for as long
//! as any allocation of it was marked; what is answered is the allocation's own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memcuda_core::driver::{Code, Context};
use memcuda_core::pool::BlockInfo;

use crate::calls::Calls;

/// `CU_CTX_SYNC_MEMOPS`.
const CTX_SYNC_MEMOPS: u32 = 0x80;

/// The marked allocations of a device.
#[derive(Default)]
pub struct Memops {
    marks: Mutex<Vec<Mark>>,
    /// How many there are, for who wants to know without a lock.
    count: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Mark {
    /// See [`BlockInfo::id`].
    id: u64,
    context: Context,
    /// The context had the flag before any of ours.
    programs: bool,
}

impl Memops {
    /// Is this allocation marked?
    pub fn is_set(&self, block: &BlockInfo) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.lock().iter().any(|m| m.id == block.id)
    }

    /// Marks an allocation. Fails with the driver's code where its context
    /// cannot have the flag, `NOT_SUPPORTED` where no context can.
    pub fn set(&self, calls: &Calls, block: &BlockInfo) -> Result<(), Code> {
        let mut marks = self.lock();
        if marks.iter().any(|mark| mark.id == block.id) {
            return Ok(());
        }
        let known = marks.iter().find(|mark| mark.context == block.context);
        let programs = match known {
            Some(mark) => mark.programs,
            None => change(calls, block.context, |flags| flags | CTX_SYNC_MEMOPS)?,
        };
        marks.push(Mark {
            id: block.id,
            context: block.context,
            programs,
        });
        self.count.store(marks.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes the mark off an allocation, as at its end; nothing where it has
    /// none.
    pub fn clear(&self, calls: &Calls, block: &BlockInfo) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut marks = self.lock();
        let Some(at) = marks.iter().position(|mark| mark.id == block.id) else {
            return;
        };
        let mark = marks.swap_remove(at);
        self.count.store(marks.len(), Ordering::Relaxed);
        let last = marks.iter().all(|other| other.context != mark.context);
        if last && !mark.programs {
            // Where this fails, copies go on waiting: never weaker than asked.
            let _ = change(calls, mark.context, |flags| flags & !CTX_SYNC_MEMOPS);
        }
    }

    /// A context is gone, and its flag with it.
    pub fn forget(&self, context: Context) {
        let mut marks = self.lock();
        marks.retain(|mark| mark.context != context);
        self.count.store(marks.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes the flags of a context; whether it had the flag before.
fn change(calls: &Calls, context: Context, to: fn(u32) -> u32) -> Result<bool, Code> {
    let (Some(flags_of), Some(set_flags)) = (calls.ctx_flags, calls.ctx_set_flags) else {
        return Err(Code::NOT_SUPPORTED);
    };
    calls.within(context, || {
        let mut flags = 0;
        // SAFETY: the pointer is valid for the call; the flags written back are
        // the context's own but for one.
        unsafe {
            flags_of(&mut flags).ok()?;
            if to(flags) != flags {
                set_flags(to(flags)).ok()?;
            }
        }
        Ok(flags & CTX_SYNC_MEMOPS != 0)
    })?
}
