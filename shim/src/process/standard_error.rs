//! Descriptor 2: is it standard error? A program may have closed that and opened a file or a
//! connection of its own, which got the number: nothing is written into those. Allocates
//! nothing.

use std::mem::zeroed;
use std::sync::OnceLock;

/// What it was when CUDA started, where nothing but that it was there tells what it is.
static AT_FIRST: OnceLock<Identity> = OnceLock::new();

/// Device and inode.
type Identity = (libc::dev_t, libc::ino_t);

/// Remembers what is there now. A file with a name may be a program's data already.
pub fn remember() {
    if let Some(it) = stat().filter(|it| !is_regular(it) || it.st_nlink == 0) {
        let _ = AT_FIRST.set(identity(&it));
    }
}

/// Is it standard error now? That is open in programs which this one becomes, and is a
/// terminal or written to alone or at the end, or else what it was at first. May change `errno`.
pub fn is_there() -> bool {
    const NUMBER: libc::c_int = libc::STDERR_FILENO;
    // SAFETY: they ask about a number, whatever is open under it.
    let (own, flags) = unsafe {
        (
            libc::fcntl(NUMBER, libc::F_GETFD),
            libc::fcntl(NUMBER, libc::F_GETFL),
        )
    };
    if own < 0 || flags < 0 || own & libc::FD_CLOEXEC != 0 {
        return false;
    }
    let is_for_lines = flags & libc::O_ACCMODE == libc::O_WRONLY || flags & libc::O_APPEND != 0;
    // SAFETY: as above.
    let is_terminal = || unsafe { libc::isatty(NUMBER) } == 1;
    let at_first = || AT_FIRST.get() == stat().as_ref().map(identity).as_ref();
    is_for_lines || is_terminal() || at_first()
}

fn stat() -> Option<libc::stat> {
    // SAFETY: zeros are a value of it, and the call fills it.
    unsafe {
        let mut it = zeroed();
        (libc::fstat(libc::STDERR_FILENO, &mut it) == 0).then_some(it)
    }
}

fn is_regular(it: &libc::stat) -> bool {
    it.st_mode & libc::S_IFMT == libc::S_IFREG
}

fn identity(it: &libc::stat) -> Identity {
    (it.st_dev, it.st_ino)
}
