//! SYNC_MEMOPS of pooled memory: who asked that copies from and to an
//! allocation be over when their call returns. The driver grants that for
//! mapped memory to whole contexts only, so a context has the flag for as long
//! as any allocation of it is marked, whatever flags the program sets meanwhile; what is
//! answered is the allocation's own. To give the flag ends every capture, so beside one it is
//! owed until no stream captures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once};

use memcuda_core::driver::{Address, Code, Context};
use memcuda_core::lock;
use memcuda_core::pool::CAPTURES;

use crate::driver::calls::Calls;
use crate::driver::marks::{Flag, Mark, Marks, Which};

/// `CU_CTX_SYNC_MEMOPS`.
const CTX_SYNC_MEMOPS: u32 = 0x80;

/// Was it said that there is no such flag?
static SAID: Once = Once::new();

/// The marked allocations of a device.
#[derive(Default)]
pub struct Memops {
    marks: Mutex<Marks>,
    /// How many there are, for who wants to know without a lock.
    count: AtomicUsize,
}

impl Memops {
    /// Is any of this marked?
    pub fn is_set(&self, which: Which) -> bool {
        self.any() && !self.lock().touched_by(which).is_empty()
    }

    fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Marks memory of a context, which it may outlive, or of none. Fails with the driver's
    /// code where that cannot have the flag, `NOT_SUPPORTED` where no context can.
    pub fn set(
        &self,
        calls: &Calls,
        which: Which,
        context: Context,
        outlives: bool,
    ) -> Result<(), Code> {
        let mut marks = self.lock();
        let has_flag = |known: &Mark| {
            let flag = marks.flag(known.context);
            known.context != Context::default() && flag.is_some_and(|flag| flag != Flag::Owed)
        };
        if marks.get(which).is_some_and(has_flag) {
            return Ok(());
        }
        let flag = match context == Context::default() {
            true => Flag::Programs,
            false => give_flag(&marks, calls, context)?,
        };
        marks.remove(which);
        marks.add(which, Mark { context, outlives }, flag);
        self.recount(&marks);
        Ok(())
    }

    /// Gives what is owed, where no stream captures any more.
    pub fn pay(&self, calls: &Calls) {
        if !self.any() {
            return;
        }
        let mut marks = self.lock();
        for context in marks.owed() {
            // A broken context stays owed it, until it ends.
            if let Ok(flag) = give_flag(&marks, calls, context) {
                marks.set_flag(context, flag);
            }
        }
    }

    /// Takes the marks off memory, as at its end; nothing where it has none.
    #[inline]
    pub fn clear(&self, calls: &Calls, which: Which) {
        if self.any() {
            let mut marks = self.lock();
            let over = marks.touched_by(which);
            self.clear_all(calls, &mut marks, &over);
        }
    }

    /// Pages in this range are gone: so are the marks of ranges in which nothing
    /// `is_used` any more.
    pub fn left(&self, calls: &Calls, range: Which, is_used: impl Fn(Address, u64) -> bool) {
        if !self.any() {
            return;
        }
        // Nobody is asked under the lock.
        let mut over = self.lock().touched_by(range);
        over.retain(|mark| match *mark {
            Which::Range(at, bytes) => !is_used(at, bytes),
            Which::Block(_) => false,
        });
        self.clear_all(calls, &mut self.lock(), &over);
    }

    fn clear_all(&self, calls: &Calls, marks: &mut Marks, over: &[Which]) {
        for which in over {
            if let Some((context, Flag::Ours)) = marks.remove(*which) {
                // Where this fails, copies go on waiting: never weaker than asked.
                let _ = change(calls, context, |flags| flags & !CTX_SYNC_MEMOPS);
            }
        }
        self.recount(marks);
    }

    /// The program sets the flags of a context, by `real`: where memory of it is marked the
    /// context keeps the flag, and has after that what the program wants.
    pub fn set_flags(
        &self,
        flags: u32,
        context: impl FnOnce() -> Option<Context>,
        real: impl FnOnce(u32) -> Code,
    ) -> Code {
        let mut marks = self.lock();
        let context = (marks.count() > 0).then(context).flatten();
        let flag = context.and_then(|context| marks.flag(context));
        let given = flag.is_some_and(|flag| flag != Flag::Owed);
        let code = real(if given {
            flags | CTX_SYNC_MEMOPS
        } else {
            flags
        });
        if code == Code::SUCCESS
            && let Some(context) = context
        {
            let flag = match (flags & CTX_SYNC_MEMOPS != 0, given) {
                (true, _) => Flag::Programs,
                (false, true) => Flag::Ours,
                (false, false) => Flag::Owed,
            };
            marks.set_flag(context, flag);
        }
        code
    }

    /// A context is gone, and its flag with it: memory that outlives it stays marked.
    pub fn forget(&self, context: Context) {
        let mut marks = self.lock();
        if marks.flag(context).is_none() {
            return;
        }
        for (which, mark) in marks.of(context) {
            marks.remove(which);
            if mark.outlives {
                let context = Context::default();
                marks.add(which, Mark { context, ..mark }, Flag::Programs);
            }
        }
        self.recount(&marks);
    }

    /// A view of a context (a green one) is gone: its memory is the context's, which gets the
    /// flag.
    pub fn hand_over(&self, calls: &Calls, view: Context, whole: Context) {
        let mut marks = self.lock();
        if marks.flag(view).is_none() {
            return;
        }
        let Ok(flag) = give_flag(&marks, calls, whole) else {
            // It has ended with this view.
            drop(marks);
            return self.forget(view);
        };
        for (which, mark) in marks.of(view) {
            marks.remove(which);
            let context = whole;
            marks.add(which, Mark { context, ..mark }, flag);
        }
    }

    fn recount(&self, marks: &Marks) {
        self.count.store(marks.count(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        lock::lock(&self.marks)
    }
}

/// A context has the flag from now on, or is owed it.
fn give_flag(marks: &Marks, calls: &Calls, context: Context) -> Result<Flag, Code> {
    if context == Context::default() {
        return Err(Code::INVALID_CONTEXT);
    }
    if let Some(known) = marks.flag(context).filter(|flag| *flag != Flag::Owed) {
        return Ok(known);
    }
    // Captures are not kept from beginning: the driver's call waits for all work of the context,
    // and that may be for a thread that begins one.
    if CAPTURES.exclude(|| ()).is_none() {
        return Ok(Flag::Owed);
    }
    match change(calls, context, |flags| flags | CTX_SYNC_MEMOPS) {
        Ok(true) => Ok(Flag::Programs),
        Ok(false) => Ok(Flag::Ours),
        Err(Code::STREAM_CAPTURE_UNSUPPORTED) => Ok(Flag::Owed),
        Err(code) => Err(code),
    }
}

/// Changes the flags of a context; whether it had the flag before.
fn change(calls: &Calls, context: Context, to: fn(u32) -> u32) -> Result<bool, Code> {
    let (Some(flags_of), Some(set_flags)) = (calls.ctx_flags, calls.ctx_set_flags) else {
        SAID.call_once(|| {
            crate::log!(
                Warn,
                "this driver (before CUDA 12.1) cannot make copies of pooled memory synchronous: \
                 SYNC_MEMOPS is refused"
            );
        });
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
