//! The bytes of one device: a sparse memfd, mapped once as a whole. Plain
//! allocations live in that mapping; physical handles are ranges of the file
//! that are mapped elsewhere. An exported descriptor is the same file opened
//! again, with the handle's offset as its file position.
//!
//! Lends ranges of the file; never decides whether a use of them is legal.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::abi::{Answer, Code};
use crate::address::{map_file, reserve_address};
use crate::ranges::Ranges;
use crate::shared::Ledger;

/// Granularity of physical memory, in bytes.
pub const GRANULE: u64 = 2 << 20;
/// Distance of small allocations, in bytes.
pub const SMALL: u64 = 512;
/// From so many bytes on an allocation has granules of its own: what would
/// leave less than 1 KiB of one gets it whole.
pub const LARGE: u64 = GRANULE - SMALL;
/// Bytes of the record that describes an exported handle.
const RECORD: u64 = 64;
const PAGE: u64 = 4096;
/// What new memory holds here and there: that of a card has what was there before.
const STAIN: u8 = 0xB7;
const MAGIC: u64 = 0x6d65_6d63_7564_6131;

pub struct Arena {
    pub device: usize,
    /// Tells this arena from those of other processes.
    pub id: u64,
    /// Where the file is mapped as a whole.
    pub base: u64,
    pub span: u64,
    file: OwnedFd,
    large: Ranges,
    small: Ranges,
    /// Exported ranges whose owner let go, until every importer did too.
    lingering: Vec<(u64, u64)>,
}

impl Arena {
    pub fn new(device: usize, memory: u64) -> Result<Arena, Code> {
        let least = memory.next_multiple_of(GRANULE) * 4;
        // Some tools (valgrind) leave a process little address space.
        let reserved = |span| reserve_address(span, GRANULE).map(|base| (base, span));
        let (base, span) = reserved(least.max(64 << 30)).or_else(|_| reserved(least))?;
        // SAFETY: a NUL-terminated name; the descriptor is checked and owned at once.
        let file = unsafe {
            let fd = libc::memfd_create(c"memcuda-sim".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(Code::OUT_OF_MEMORY);
            }
            OwnedFd::from_raw_fd(fd)
        };
        let records = span / GRANULE * RECORD;
        // SAFETY: plain system calls on a descriptor that we own; the mapping
        // replaces the reservation made above.
        unsafe {
            if libc::ftruncate(file.as_raw_fd(), (span + records) as i64) != 0 {
                return Err(Code::OUT_OF_MEMORY);
            }
            map_file(
                base,
                span,
                file.as_raw_fd(),
                0,
                libc::PROT_READ | libc::PROT_WRITE,
            )?;
        };
        let mut id = [0; 8];
        // SAFETY: the buffer has the length that is passed.
        unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) };
        let mut large = Ranges::default();
        large.give(0, span);
        Ok(Arena {
            device,
            id: u64::from_ne_bytes(id),
            base,
            span,
            file,
            large,
            small: Ranges::default(),
            lingering: Vec::new(),
        })
    }

    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Does this address lie in the whole mapping?
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.span
    }

    /// Lends `bytes`, a multiple of [`SMALL`]. Below [`LARGE`] they are packed
    /// and the device pays for whole granules only.
    pub fn take(&mut self, bytes: u64, ledger: &mut Ledger) -> Result<u64, Code> {
        if bytes >= LARGE {
            return self.take_granules(bytes.next_multiple_of(GRANULE), ledger);
        }
        // More than half a granule has one that it may share, but not cross.
        let fits = bytes <= GRANULE / 2;
        let offset = match fits.then(|| self.small.take(bytes)).flatten() {
            Some(offset) => offset,
            None => {
                let slab = self.take_granules(GRANULE, ledger)?;
                self.small.give(slab + bytes, GRANULE - bytes);
                slab
            }
        };
        self.stain(offset, bytes);
        Ok(offset)
    }

    /// Lends whole granules.
    pub fn take_granules(&mut self, bytes: u64, ledger: &mut Ledger) -> Result<u64, Code> {
        if ledger.charge(self.device, bytes).is_err() {
            self.settle_lingering(ledger);
            ledger.charge(self.device, bytes)?;
        }
        let Some(offset) = self.large.take(bytes) else {
            ledger.refund(self.device, bytes);
            return Err(Code::OUT_OF_MEMORY);
        };
        self.stain(offset, bytes);
        Ok(offset)
    }

    /// Takes back what [`Arena::take`] lent.
    pub fn give(&mut self, offset: u64, bytes: u64, ledger: &mut Ledger) {
        if bytes >= LARGE {
            return self.give_granules(offset, bytes.next_multiple_of(GRANULE), ledger);
        }
        let (start, length) = self.small.give(offset, bytes);
        let first = start.next_multiple_of(GRANULE);
        let end = (start + length) / GRANULE * GRANULE;
        if first < end {
            self.small.carve(first, end - first);
            self.give_granules(first, end - first, ledger);
        }
    }

    /// Takes granules back, with what lies in them.
    pub fn give_granules(&mut self, offset: u64, bytes: u64, ledger: &mut Ledger) {
        self.clear(offset, bytes);
        self.large.give(offset, bytes);
        ledger.refund(self.device, bytes);
    }

    /// Takes an exported range back once nobody else holds it.
    pub fn linger(&mut self, offset: u64, bytes: u64, ledger: &mut Ledger) {
        self.lingering.push((offset, bytes));
        self.settle_lingering(ledger);
    }

    /// Gives back the exported ranges that no other process holds any more.
    pub fn settle_lingering(&mut self, ledger: &mut Ledger) {
        for (offset, bytes) in std::mem::take(&mut self.lingering) {
            if is_held(self.fd(), offset) {
                self.lingering.push((offset, bytes));
            } else {
                self.give_granules(offset, bytes, ledger);
            }
        }
    }

    /// Writes where memory begins, at each granule, and where it ends. To write everywhere
    /// would take as much of the host.
    fn stain(&self, offset: u64, bytes: u64) {
        let length = bytes.min(PAGE);
        let begins = (0..bytes).step_by(GRANULE as usize);
        for at in begins.chain([bytes - length]) {
            // SAFETY: inside the mapping of the whole file, in what was just taken: a
            // granule is longer than a page.
            unsafe {
                let at = (self.base + offset + at) as *mut u8;
                at.write_bytes(STAIN, length as usize);
            }
        }
    }

    /// Drops whole pages, so that they read as zero and cost nothing.
    pub fn clear(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a system call on our own descriptor, inside the file.
        unsafe { libc::fallocate(self.fd(), mode, offset as i64, bytes as i64) };
    }

    /// A descriptor that keeps and names the granules at `offset`.
    pub fn export(&self, offset: u64, bytes: u64) -> Result<OwnedFd, Code> {
        self.describe(offset, bytes, 0)?;
        open_again(self.fd(), offset)
    }

    /// Writes down what an importer needs to know of the granules at `offset`, and of
    /// which allocation they are; 0 is none.
    pub fn describe(&self, offset: u64, bytes: u64, allocation: u64) -> Answer {
        let device = self.device as u64;
        let record = [MAGIC, self.id, offset, bytes, device, allocation, 0, 0];
        let at = self.span + offset / GRANULE * RECORD;
        // SAFETY: the buffer has the length that is passed; our own descriptor.
        let wrote = unsafe {
            libc::pwrite(
                self.fd(),
                record.as_ptr().cast(),
                size_of_val(&record),
                at as i64,
            )
        };
        if wrote != size_of_val(&record) as isize {
            return Err(Code::OUT_OF_MEMORY);
        }
        Ok(())
    }
}

/// An exported handle as its importer sees it.
pub struct Import {
    pub file: OwnedFd,
    pub arena: u64,
    pub offset: u64,
    pub bytes: u64,
    pub device: usize,
    /// Which has these granules for itself; 0 is none.
    pub allocation: u64,
}

/// Memory of another process that is held for as long as this lives: a page of
/// it is mapped, which keeps the open file and its lock without a descriptor.
pub struct Keep {
    page: u64,
    /// The arena's file.
    pub arena: Arc<OwnedFd>,
}

impl Keep {
    pub fn of(import: &Import, arena: Arc<OwnedFd>) -> Result<Keep, Code> {
        let page = reserve_address(PAGE, PAGE)?;
        // SAFETY: the page was reserved on the line above.
        unsafe {
            map_file(
                page,
                PAGE,
                import.file.as_raw_fd(),
                import.offset,
                libc::PROT_NONE,
            )?
        };
        Ok(Keep { page, arena })
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        unsafe { libc::munmap(self.page as *mut _, PAGE as usize) };
    }
}

impl Import {
    /// Reads an exported descriptor, which stays the caller's.
    pub fn open(fd: i32) -> Result<Import, Code> {
        // SAFETY: a system call that fails cleanly on any number.
        let offset = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
        Import::at(fd, u64::try_from(offset).map_err(|_| Code::INVALID_VALUE)?)
    }

    /// Reads what is exported at an offset of the file.
    pub fn at(fd: i32, offset: u64) -> Result<Import, Code> {
        // SAFETY: system calls that fail cleanly on a descriptor that is not
        // ours; the record is read into an array of its own size.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &mut stat) != 0 {
                return Err(Code::INVALID_VALUE);
            }
            let size = stat.st_size as u64;
            let granules = size / (GRANULE + RECORD);
            let mut record = [0u64; 8];
            let at = granules * GRANULE + offset / GRANULE * RECORD;
            let length = size_of_val(&record);
            let got = libc::pread(fd, record.as_mut_ptr().cast(), length, at as i64);
            if got != length as isize || record[0] != MAGIC || record[2] != offset {
                return Err(Code::INVALID_VALUE);
            }
            Ok(Import {
                file: open_again(fd, offset)?,
                arena: record[1],
                offset,
                bytes: record[3],
                device: record[4] as usize,
                allocation: record[5],
            })
        }
    }
}

/// Opens the file of a descriptor again, with a lock that says for as long as
/// any copy of the new descriptor lives that the range at `offset` is held.
fn open_again(fd: i32, offset: u64) -> Result<OwnedFd, Code> {
    let file = reopen(fd)?;
    let fd = file.as_raw_fd();
    // SAFETY: our own descriptor; the lock structure is fully set.
    unsafe {
        libc::lseek(fd, offset as i64, libc::SEEK_SET);
        let mut lock = lock_at(libc::F_RDLCK, offset);
        if libc::fcntl(fd, libc::F_OFD_SETLK, &mut lock) != 0 {
            return Err(Code::OUT_OF_MEMORY);
        }
        Ok(file)
    }
}

/// The file of a descriptor, opened again: what is locked through one is not
/// through the other.
pub fn reopen(fd: i32) -> Result<OwnedFd, Code> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| Code::UNKNOWN)?;
    // SAFETY: a NUL-terminated path; the new descriptor is owned at once.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        match fd {
            0.. => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(Code::OUT_OF_MEMORY),
        }
    }
}

/// Does another open descriptor hold the range at `offset`?
fn is_held(fd: i32, offset: u64) -> bool {
    let mut lock = lock_at(libc::F_WRLCK, offset);
    // SAFETY: our own descriptor and a fully set structure.
    unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &mut lock) };
    lock.l_type != libc::F_UNLCK as i16
}

fn lock_at(kind: i32, offset: u64) -> libc::flock {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = offset as i64;
    lock.l_len = 1;
    lock
}
