//! Starts a keeper: the `memcuda` beside this library, in a session of its own,
//! without the job's preloads, descriptors, terminal or directory. It is nobody's
//! child here: the program sees no signal of it and waits for none but its own,
//! unless it is the one to whom orphans are given (the first of a container).
//!
//! Two steps below share this process's memory and stop the calling thread
//! (`CLONE_VM | CLONE_VFORK`), as posix_spawn does: no handler of a fork runs,
//! and nothing is copied. They make system calls only.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use super::settings;
use crate::libraries::modules;
use crate::process::environment;

/// Bytes of stack for each of the two steps.
const STACK: usize = 64 << 10;

/// The most files that a process may have open, as Linux sets it (`fs.nr_open`).
const OPEN_FILES: libc::rlim_t = 1 << 20;

/// What the two steps are given.
struct Plan {
    program: CString,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    stack: *mut u8,
    started: bool,
}

/// Starts a keeper for a socket at the user's own place; false, and a line,
/// where it cannot be.
pub fn start(socket: &Path) -> bool {
    let Some(program) = program() else {
        crate::log_once!(
            Warn,
            "there is no memcuda command beside libmemcuda.so to keep shared memory"
        );
        return false;
    };
    let shown = program.display().to_string();
    let Ok(program) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    let started = spawn(program);
    if started {
        crate::log!(
            Info,
            "keeper started: {shown} keeper, for {}",
            socket.display()
        );
    } else {
        crate::log_once!(Warn, "{shown} cannot be started as a keeper");
    }
    started
}

/// The command that belongs to this library: beside it, or in the `bin` next to
/// its `lib`, `lib/memcuda` or `libexec/memcuda`.
fn program() -> Option<PathBuf> {
    let library = modules::at(start as *const () as usize)?;
    let library = Path::new(std::ffi::OsStr::from_bytes(library.path.to_bytes()));
    let directory = std::fs::canonicalize(library).ok()?;
    let directory = directory.parent()?;
    let places = ["memcuda", "../bin/memcuda", "../../bin/memcuda"];
    let mut places = places.iter().map(|place| directory.join(place));
    places.find(|place| place.is_file())
}

fn spawn(program: CString) -> bool {
    let mut stacks = vec![0_u8; 2 * STACK];
    let entries: Vec<&CStr> = environment::entries().collect();
    let settings = settings::of(&entries);
    let mut environment: Vec<_> = settings.iter().map(|entry| entry.as_ptr()).collect();
    environment.push(ptr::null());
    let arguments = [c"keeper", c"--for-program"].map(CStr::as_ptr);
    let arguments = vec![program.as_ptr(), arguments[0], arguments[1], ptr::null()];
    let mut plan = Plan {
        program,
        arguments,
        environment,
        // SAFETY: both are inside the allocation, or one byte behind it.
        stack: unsafe { stacks.as_mut_ptr().add(STACK) },
        started: false,
    };
    // SAFETY: one byte behind the allocation.
    let top = unsafe { stacks.as_mut_ptr().add(2 * STACK) };
    // SAFETY: all-zero sets are filled before they are read. Signals are blocked,
    // so that no handler of the program runs in the steps below; they share the
    // memory, so `plan` and the stacks outlive them: the thread sleeps meanwhile.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        let child = libc::clone(leave, aligned(top), flags, (&raw mut plan).cast());
        if child > 0 {
            // It ended before this thread went on; without a signal to tell of
            // its end only this kind of wait knows it.
            while libc::waitpid(child, ptr::null_mut(), libc::__WCLONE) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
    plan.started
}

fn aligned(top: *mut u8) -> *mut c_void {
    top.map_addr(|address| address & !15).cast()
}

/// The first step: a session of its own, then the second step, which is nobody's
/// child once this one has ended.
extern "C" fn leave(plan: *mut c_void) -> c_int {
    // SAFETY: the plan of the sleeping parent; system calls only.
    unsafe {
        libc::setsid();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let top = (*plan.cast::<Plan>()).stack;
        let child = libc::clone(become_keeper, aligned(top), flags, plan);
        (*plan.cast::<Plan>()).started &= child > 0;
        libc::_exit(0)
    }
}

/// The second step: nothing of the job's is open any more, and the program runs.
extern "C" fn become_keeper(plan: *mut c_void) -> c_int {
    // SAFETY: the plan of the sleeping parents; system calls only.
    unsafe {
        let plan = plan.cast::<Plan>();
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..=2 {
            libc::dup2(null, standard);
        }
        close_others();
        raise_limit();
        libc::chdir(c"/".as_ptr());
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        // It may fail from here on, which nobody hears of but by its silence.
        (*plan).started = true;
        let arguments = (*plan).arguments.as_ptr();
        libc::execve(
            (*plan).program.as_ptr(),
            arguments,
            (*plan).environment.as_ptr(),
        );
        (*plan).started = false;
        libc::_exit(127)
    }
}

/// The keeper holds what many programs share: where that is allowed, the limit of open files
/// of the one that starts it is not its own.
///
/// # Safety
/// In a process whose limits are nobody else's.
unsafe fn raise_limit() {
    // SAFETY: reads and writes one structure; sets a limit, which the caller allows.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_max < OPEN_FILES {
            limit.rlim_max = OPEN_FILES;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Closes all descriptors but the first three.
///
/// # Safety
/// In a process that uses none of them.
unsafe fn close_others() {
    const FIRST: u32 = 3;
    // SAFETY: closes descriptors, which the caller allows.
    unsafe {
        if libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, 0) == 0 {
            return;
        }
        // A kernel before 5.9.
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for descriptor in FIRST as i32..limit.rlim_cur.min(1 << 16) as i32 {
            libc::close(descriptor);
        }
    }
}
