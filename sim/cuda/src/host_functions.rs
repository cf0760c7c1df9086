//! Functions of the host in the order of a stream (`cuLaunchHostFunc`): what is behind one
//! waits until it has returned. A thread of the simulation's own runs them, one after the
//! other and unlocked; no call does. Says which calls such a function may make.

use std::cell::Cell;
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

use crate::abi::{Answer, Code, HostFn};
use crate::entry::lock;
use crate::held::{Stage, Why};
use crate::state::Sim;
use crate::stream::Effect;

/// How long nobody calls until a clock that only calls move moves by itself, where a function
/// is to run.
const IDLE: Duration = Duration::from_millis(20);
/// How long the thread rests where somebody else must move a wait first.
const LOOK: Duration = Duration::from_millis(1);

/// What the driver answers inside such a function (docs/measurements/h100.md); all else
/// is refused.
const MAY: &[&str] = &[
    "cuStreamBeginCapture",
    "cuStreamBeginCapture_v2",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamDestroy",
    "cuStreamDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
];

/// There is something to do, or to wait for.
static NEWS: Condvar = Condvar::new();

thread_local! {
    /// This is the thread that runs them.
    static RUNS_THEM: Cell<bool> = const { Cell::new(false) };
}

/// Does such a function call? The thread that runs them has no context.
pub fn is_inside() -> bool {
    RUNS_THEM.get()
}

/// Refuses a call that a function of the host may not make.
pub fn refuse_inside(call: &str) -> Answer {
    let plain = call.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match RUNS_THEM.get() && !plain.starts_with("cuSim") && !MAY.contains(&plain) {
        true => Err(Code::NOT_PERMITTED),
        false => Ok(()),
    }
}

impl Sim {
    /// A function in the order of a stream; of a graph's too, once it is launched.
    pub fn function_behind(&mut self, id: u32, function: HostFn, data: usize) -> Answer {
        if self.streams[&id].capture.is_some() {
            return self.submit(id, 0, &[], Effect::Host(function, data));
        }
        self.submit(id, 0, &[], Effect::Nothing)?;
        let number = self.number(0);
        let why = Why::Function {
            function,
            data,
            number,
            stage: Stage::Queued,
        };
        self.hold_stream(id, why);
        if !std::mem::replace(&mut self.host_thread, true) {
            start_thread();
        }
        NEWS.notify_one();
        Ok(())
    }

    /// Is there a function whose time has come?
    pub fn wake_host_thread(&mut self) {
        if self.host_thread && self.due_function().is_some() {
            NEWS.notify_one();
        }
    }

    /// Which of what is held is a function whose time has come.
    fn due_function(&mut self) -> Option<usize> {
        let now = self.clock.now();
        let due = |held: &crate::held::Held| match held.why {
            Why::Function { stage, .. } => stage == Stage::Queued && held.is_there(now),
            _ => false,
        };
        self.held.iter().position(due)
    }

    /// Is there a function that runs, or is to be run now?
    pub fn runs_functions(&mut self) -> bool {
        let runs = |held: &crate::held::Held| match held.why {
            Why::Function { stage, .. } => stage == Stage::Runs,
            _ => false,
        };
        self.held.iter().any(runs) || self.due_function().is_some()
    }

    /// The next function, which begins to run.
    fn take_function(&mut self) -> Option<(HostFn, usize, u64)> {
        let index = self.due_function()?;
        match &mut self.held[index].why {
            Why::Function {
                function,
                data,
                number,
                stage,
            } => {
                *stage = Stage::Runs;
                Some((*function, *data, *number))
            }
            _ => None,
        }
    }

    /// A function has returned. What stood behind it may be gone with its context.
    fn function_returned(&mut self, which: u64) {
        for held in &mut self.held {
            if let Why::Function { number, stage, .. } = &mut held.why
                && *number == which
            {
                *stage = Stage::Returned;
            }
        }
    }

    /// How long the thread rests; for ever where there is nothing to come.
    fn rest_of_thread(&mut self) -> Option<Duration> {
        let queued = |held: &crate::held::Held| matches!(held.why, Why::Function { .. });
        if !self.held.iter().any(queued) {
            return None;
        }
        match (self.clock.passes_by_itself(), self.next_moment()) {
            (false, _) => Some(IDLE),
            (true, None) => Some(LOOK),
            (true, Some(at)) => Some(Duration::from_nanos(at - self.clock.now())),
        }
    }
}

/// Starts the thread, which hears no signal of the program.
fn start_thread() {
    // SAFETY: all zeros is a set of signals, and both are valid for the calls.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let started = std::thread::Builder::new()
        .name("sim-host-funcs".to_owned())
        .spawn(serve);
    // SAFETY: the set that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    assert!(started.is_ok(), "no thread for functions of the host");
}

fn serve() {
    RUNS_THEM.set(true);
    let mut state = lock();
    while let Some(sim) = state.as_mut() {
        sim.settle();
        if let Some((function, data, number)) = sim.take_function() {
            drop(state);
            // SAFETY: the program gave the function and its argument for this call.
            unsafe { function(data as *mut libc::c_void) };
            state = lock();
            if let Some(sim) = state.as_mut() {
                sim.function_returned(number);
                sim.settle();
            }
            continue;
        }
        let (rest, calls) = (sim.rest_of_thread(), sim.waits.calls());
        let Some(rest) = rest else {
            state = NEWS.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let rested = NEWS.wait_timeout(state, rest);
        state = rested.unwrap_or_else(PoisonError::into_inner).0;
        if let Some(sim) = state.as_mut()
            && sim.waits.calls() == calls
            && let Some(next) = sim.next_moment()
        {
            sim.clock.skips_to(next);
        }
    }
}
