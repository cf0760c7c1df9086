//! The statistics page of this process: makes the memfd and maps it. It
//! is gone with the process.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

use memcuda_core::descriptor::Lasting;
use memcuda_core::pool::{Line, Stats};
use memcuda_core::stats_page::{BYTES, Counters, MEMFD_NAME, WORDS, Writer};

use crate::process::signals;

/// The page, where it could be made, and its file.
pub struct Page(Option<(Writer, Lasting)>);

impl Page {
    /// No page: `MEMCUDA_STATS=off`.
    pub fn none() -> Self {
        Self(None)
    }

    /// Makes the page. Its descriptor stays open, so that `memcuda stat` finds
    /// it, and is closed on exec.
    pub fn new() -> Self {
        let page = map();
        if page.is_none() {
            crate::log!(Warn, "no statistics page: memfd_create or mmap failed");
        }
        Self(page.map(|(words, file)| (Writer::new(words), file)))
    }

    /// Its descriptor, by which others know whose page it is.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.as_ref()?.1.number()
    }

    fn writer(&self) -> Option<&Writer> {
        self.0.as_ref().map(|(writer, _)| writer)
    }

    /// The lines of a device, for its pool.
    pub fn lines(&self, ordinal: u32) -> Option<&'static [Line]> {
        self.writer()?.lines(ordinal.into())
    }

    /// Publishes how many frees of a device the driver got.
    pub fn publish_foreign_frees(&self, ordinal: u32, frees: u64) {
        if let Some(writer) = self.writer() {
            writer.publish_foreign_frees(ordinal.into(), frees);
        }
    }

    /// Publishes a device's counters, but for what its lines say.
    pub fn publish(&self, ordinal: u32, stats: &Stats, foreign_frees: u64) {
        let Some(writer) = self.writer() else { return };
        writer.publish(&Counters {
            ordinal: ordinal.into(),
            foreign_frees,
            pool: *stats,
        });
    }
}

fn map() -> Option<(&'static [AtomicU64; WORDS], Lasting)> {
    let name = std::ffi::CString::new(MEMFD_NAME).ok()?;
    // SAFETY: the name is a string; the descriptor is this function's.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: it was made above, and is nobody else's.
    let file = Lasting::new(unsafe { OwnedFd::from_raw_fd(descriptor) }).ok()?;
    let descriptor = file.number()?;
    let _held = signals::hold();
    // SAFETY: a fresh shared mapping of a file of that size, never unmapped;
    // memory of the kernel is zeroed and aligned to pages.
    unsafe {
        if libc::ftruncate(descriptor, BYTES as libc::off_t) != 0 {
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let null = std::ptr::null_mut();
        let at = libc::mmap(null, BYTES, access, libc::MAP_SHARED, descriptor, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        Some((at.cast::<[AtomicU64; WORDS]>().as_ref()?, file))
    }
}
