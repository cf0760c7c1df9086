//! The signals by which the system tells a thread that it wrote to a pipe nobody reads, or
//! beyond the limit of a file's size (`ulimit -f`): by default both end the program, which
//! did not write. Held back, as is the cancelling of the thread, while this library writes. Changes no handler, and takes no
//! signal that was the program's before.

use std::mem::zeroed;
use std::ptr;

use memcuda_core::driver::cancel;

const OF_WRITES: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// While it lives none of them reaches this thread; those that came go with it.
pub struct Held {
    /// What the thread blocked before.
    before: libc::sigset_t,
    /// What waited for it before.
    waiting: libc::sigset_t,
    /// To ask for what came is a call by which a thread ends that is cancelled.
    _cancel: cancel::Held,
}

/// Holds them back on this thread.
pub fn hold() -> Held {
    // SAFETY: zeros are a value of a set, and the pointers are valid for the calls. What
    // `sigprocmask` changes is the calling thread's on Linux; unlike `pthread_sigmask` it
    // is in the same place in every glibc.
    unsafe {
        let mut ours: libc::sigset_t = zeroed();
        let mut held = Held {
            before: zeroed(),
            waiting: zeroed(),
            _cancel: cancel::hold(),
        };
        libc::sigemptyset(&mut ours);
        for signal in OF_WRITES {
            libc::sigaddset(&mut ours, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &ours, &mut held.before);
        libc::sigpending(&mut held.waiting);
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the sets are initialised, the other pointers valid or null, as the calls allow.
        unsafe {
            for signal in OF_WRITES {
                if libc::sigismember(&self.waiting, signal) == 1 {
                    continue;
                }
                let mut own: libc::sigset_t = zeroed();
                libc::sigemptyset(&mut own);
                libc::sigaddset(&mut own, signal);
                let at_once = zeroed();
                while libc::sigtimedwait(&own, ptr::null_mut(), &at_once) < 0
                    && *libc::__errno_location() == libc::EINTR
                {}
            }
            libc::sigprocmask(libc::SIG_SETMASK, &self.before, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of which of them a set has any.
    fn of(fill: impl FnOnce(*mut libc::sigset_t)) -> [bool; 2] {
        // SAFETY: zeros are a value of a set.
        let mut set = unsafe { zeroed() };
        fill(&mut set);
        // SAFETY: the set is initialised.
        OF_WRITES.map(|signal| unsafe { libc::sigismember(&set, signal) == 1 })
    }

    fn blocked() -> [bool; 2] {
        // SAFETY: changes nothing; the pointer is valid for the call.
        of(|set| unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, ptr::null(), set);
        })
    }

    fn waiting() -> [bool; 2] {
        // SAFETY: the pointer is valid for the call.
        of(|set| unsafe {
            libc::sigpending(set);
        })
    }

    fn raise() {
        for signal in OF_WRITES {
            // SAFETY: sends a signal to this thread, which lives.
            unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
        }
    }

    #[test]
    fn what_came_by_a_write_is_gone_and_what_was_there_before_stays() {
        let held = hold();
        assert_eq!(blocked(), [true; 2]);
        raise();
        drop(held);
        // Had one of them reached this thread, there would be no test any more.
        assert_eq!((blocked(), waiting()), ([false; 2], [false; 2]));
        // The program holds them back itself, and one has come to it.
        let _outer = hold();
        raise();
        drop(hold());
        assert_eq!((blocked(), waiting()), ([true; 2], [true; 2]));
    }
}
