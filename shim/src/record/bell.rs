//! What wakes the library's own thread: a pair of sockets. Unlike an event descriptor each
//! has an inode, and only a socket can be rung or heard: so it never is what the program
//! has opened in its place. Nobody waits who rings, and how often was rung is lost.

use std::io::Error;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use memcuda_core::descriptor::Lasting;
use memcuda_core::driver::cancel;

/// The pair.
pub struct Bell {
    rope: Lasting<UnixStream>,
    clapper: Lasting<UnixStream>,
}

impl Bell {
    /// Makes one.
    pub fn make() -> Result<Self, Error> {
        let (rope, clapper) = UnixStream::pair()?;
        Ok(Self {
            rope: Lasting::new(rope)?,
            clapper: Lasting::new(clapper)?,
        })
    }

    /// Rings. `errno` stays as it is.
    pub fn ring(&self) {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let Some(rope) = self.rope.ours() else { return };
        // A hit rings, which holds nothing back itself.
        let _held = cancel::hold();
        // SAFETY: sends a byte that is there; where it fails the bell has rung, or is gone.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::send(rope.as_raw_fd(), ptr::from_ref(&1_u8).cast(), 1, flags);
            *errno = before;
        }
    }

    /// Hears that it was rung.
    pub fn hear(&self) {
        let mut rings = [0_u8; 64];
        let Some(clapper) = self.clapper.ours() else {
            return;
        };
        let (into, flags) = (rings.as_mut_ptr().cast(), libc::MSG_DONTWAIT);
        // SAFETY: there is room for as many bytes as said.
        unsafe { libc::recv(clapper.as_raw_fd(), into, rings.len(), flags) };
    }

    /// What to wait on until it rings; `None` where the program has closed either of
    /// them: without the rope it would be ready at once, again and again.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.rope.number().and(self.clapper.number())
    }

    /// All that it has open.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [self.rope.number(), self.clapper.number()]
            .into_iter()
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn without_its_rope_nobody_waits_for_it() {
        let bell = Bell::make().unwrap();
        let clapper = bell.clapper.number();
        assert!(clapper.is_some() && bell.descriptor() == clapper);
        let (other, rope) = (File::open("/dev/null").unwrap(), bell.rope.number());
        // SAFETY: the bell knows that the number is another file's.
        unsafe { libc::dup2(other.as_raw_fd(), rope.unwrap()) };
        assert_eq!(bell.descriptor(), None);
        assert_eq!(Vec::from_iter(bell.descriptors()), Vec::from_iter(clapper));
    }
}
