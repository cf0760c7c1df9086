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

/// `CU_CTX_SYNC_MEMOPS`.
const CTX_SYNC_MEMOPS: u32 = 0x80;

/// Was it said that there is no such flag?
static SAID: Once = Once::new();

/// The marked allocations of a device.
#[derive(Default)]
pub struct Memops {
    marks: Mutex<Vec<Mark>>,
    /// How many there are, for who wants to know without a lock.
    count: AtomicUsize,
}

/// What was marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// An allocation of the pool, by its number.
    Block(u64),
    /// Torch's pages in a range, of so many bytes: they come and go one by one.
    Range(Address, u64),
}

impl Which {
    fn touches(self, other: Self) -> bool {
        match (self, other) {
            (Self::Range(at, bytes), Self::Range(from, length)) => {
                from < at + bytes && at < from + length
            }
            _ => self == other,
        }
    }
}

#[derive(Clone, Copy)]
struct Mark {
    which: Which,
    /// Who has the flag for it; nobody where that has ended.
    context: Context,
    flag: Flag,
    /// The memory outlives its context.
    outlives: bool,
}

/// Whose the flag of a context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    /// The program's: the context had it before any of ours, or needs none.
    Programs,
    /// It was given for marks, and goes with the last of them.
    Ours,
    /// It is to be given: a stream captured when it was wanted.
    Owed,
}

impl Memops {
    /// Is any of this marked?
    pub fn is_set(&self, which: Which) -> bool {
        self.any() && self.lock().iter().any(|mark| mark.which.touches(which))
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
        let known = marks.iter().position(|mark| mark.which == which);
        let has_flag = |at: usize| {
            let mark = marks[at];
            mark.context != Context::default() && mark.flag != Flag::Owed
        };
        if known.is_some_and(has_flag) {
            return Ok(());
        }
        let flag = match context == Context::default() {
            true => Flag::Programs,
            false => give_flag(&marks, calls, context)?,
        };
        known.map(|at| marks.swap_remove(at));
        marks.push(Mark {
            which,
            context,
            flag,
            outlives,
        });
        of(&mut marks, context).for_each(|mark| mark.flag = flag);
        self.count.store(marks.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Gives what is owed, where no stream captures any more.
    pub fn pay(&self, calls: &Calls) {
        if !self.any() {
            return;
        }
        let mut marks = self.lock();
        for at in 0..marks.len() {
            // A broken context stays owed it, until it ends.
            if marks[at].flag == Flag::Owed
                && let context = marks[at].context
                && let Ok(flag) = give_flag(&marks, calls, context)
            {
                of(&mut marks, context).for_each(|mark| mark.flag = flag);
            }
        }
    }

    /// Takes the marks off memory, as at its end; nothing where it has none.
    #[inline]
    pub fn clear(&self, calls: &Calls, which: Which) {
        if self.any() {
            self.clear_all(calls, |mark| mark.touches(which));
        }
    }

    /// Pages in this range are gone: so are the marks of ranges in which nothing
    /// `is_used` any more.
    pub fn left(&self, calls: &Calls, range: Which, is_used: impl Fn(Address, u64) -> bool) {
        if !self.any() {
            return;
        }
        // Nobody is asked under the lock.
        let mut over: Vec<Which> = self.lock().iter().map(|mark| mark.which).collect();
        over.retain(|mark| match *mark {
            Which::Range(at, bytes) => mark.touches(range) && !is_used(at, bytes),
            Which::Block(_) => false,
        });
        self.clear_all(calls, |mark| over.contains(mark));
    }

    fn clear_all(&self, calls: &Calls, is_over: impl Fn(&Which) -> bool) {
        let mut marks = self.lock();
        let over: Vec<Mark> = marks.extract_if(.., |mark| is_over(&mark.which)).collect();
        self.count.store(marks.len(), Ordering::Relaxed);
        for mark in over {
            let last = marks.iter().all(|other| other.context != mark.context);
            if last && mark.flag == Flag::Ours {
                // Where this fails, copies go on waiting: never weaker than asked.
                let _ = change(calls, mark.context, |flags| flags & !CTX_SYNC_MEMOPS);
            }
        }
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
        let context = (!marks.is_empty()).then(context).flatten();
        let is_its = |mark: &&mut Mark| Some(mark.context) == context;
        let mut its: Vec<_> = marks.iter_mut().filter(is_its).collect();
        let given = its.iter().any(|mark| mark.flag != Flag::Owed);
        let code = real(if given {
            flags | CTX_SYNC_MEMOPS
        } else {
            flags
        });
        if code == Code::SUCCESS {
            let flag = match (flags & CTX_SYNC_MEMOPS != 0, given) {
                (true, _) => Flag::Programs,
                (false, true) => Flag::Ours,
                (false, false) => Flag::Owed,
            };
            its.iter_mut().for_each(|mark| mark.flag = flag);
        }
        code
    }

    /// A context is gone, and its flag with it: memory that outlives it stays marked.
    pub fn forget(&self, context: Context) {
        let mut marks = self.lock();
        marks.retain(|mark| mark.context != context || mark.outlives);
        for mark in of(&mut marks, context) {
            (mark.context, mark.flag) = (Context::default(), Flag::Programs);
        }
        self.count.store(marks.len(), Ordering::Relaxed);
    }

    /// A view of a context (a green one) is gone: its memory is the context's, which gets the
    /// flag.
    pub fn hand_over(&self, calls: &Calls, view: Context, whole: Context) {
        let mut marks = self.lock();
        if marks.iter().all(|mark| mark.context != view) {
            return;
        }
        let Ok(flag) = give_flag(&marks, calls, whole) else {
            // It has ended with this view.
            drop(marks);
            return self.forget(view);
        };
        for mark in of(&mut marks, view) {
            (mark.context, mark.flag) = (whole, flag);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mark>> {
        lock::lock(&self.marks)
    }
}

/// The marks of a context.
fn of(marks: &mut [Mark], context: Context) -> impl Iterator<Item = &mut Mark> {
    marks.iter_mut().filter(move |mark| mark.context == context)
}

/// A context has the flag from now on, or is owed it.
fn give_flag(marks: &[Mark], calls: &Calls, context: Context) -> Result<Flag, Code> {
    if context == Context::default() {
        return Err(Code::INVALID_CONTEXT);
    }
    let known = |mark: &&Mark| mark.context == context && mark.flag != Flag::Owed;
    if let Some(mark) = marks.iter().find(known) {
        return Ok(mark.flag);
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
