//! Pages of 4096 bytes that clients map: the epoch page, of which they see a
//! word grow whenever a name is gone or sealed, and timelines, of which they write the
//! first word themselves. Neither can be cut short under who maps it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create, open,
};
use rustix::io::{pread, pwrite};

/// Bytes of a page.
const BYTES: u64 = 4096;

/// The page that tells of names that are gone.
pub struct Epoch {
    page: Rc<OwnedFd>,
    reading: Rc<OwnedFd>,
    word: u64,
}

impl Epoch {
    /// With a page of this process or of a predecessor's.
    pub fn of(page: Rc<OwnedFd>) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", page.as_raw_fd());
        let reading = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // Another user cannot open it anew for writing.
        fchmod(&page, Mode::from_raw_mode(0o600))?;
        let word = word(&page);
        let reading = Rc::new(reading);
        let mut epoch = Self {
            page,
            reading,
            word,
        };
        epoch.grow();
        Ok(epoch)
    }

    /// A descriptor to be read only.
    pub fn for_clients(&self) -> Rc<OwnedFd> {
        self.reading.clone()
    }

    /// A name is gone.
    pub fn grow(&mut self) {
        self.word += 1;
        // A page of memory that is there takes eight bytes.
        let _ = pwrite(&*self.page, &self.word.to_ne_bytes(), 0);
    }
}

/// A new page for [`Epoch::of`].
pub fn epoch() -> std::io::Result<OwnedFd> {
    page("memcuda-epoch")
}

/// A new timeline.
pub fn timeline() -> std::io::Result<OwnedFd> {
    page("memcuda-timeline")
}

/// The first word of a page.
pub fn word(page: &Rc<OwnedFd>) -> u64 {
    let mut bytes = [0; 8];
    match pread(page.as_fd(), &mut bytes, 0) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

fn page(name: &str) -> std::io::Result<OwnedFd> {
    let page = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&page, BYTES)?;
    fcntl_add_seals(&page, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    // The page is there from now on, whatever becomes of memory.
    std::os::unix::fs::FileExt::write_all_at(&File::from(page.try_clone()?), &[0; 8], 0)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_read_the_epoch_and_cannot_write_or_cut_it() {
        let mut first = Epoch::of(Rc::new(epoch().unwrap())).unwrap();
        let theirs = first.for_clients();
        let before = word(&theirs);
        first.grow();
        assert!(word(&theirs) > before);
        assert!(pwrite(&*theirs, &[1; 8], 0).is_err());
        assert!(ftruncate(&*first.page, 0).is_err());
        // A successor goes on behind it.
        let second = Epoch::of(first.page.clone()).unwrap();
        assert!(word(&second.for_clients()) > before + 1);
        let timeline = Rc::new(timeline().unwrap());
        pwrite(&*timeline, &7u64.to_ne_bytes(), 0).unwrap();
        assert_eq!(word(&timeline), 7);
    }
}
