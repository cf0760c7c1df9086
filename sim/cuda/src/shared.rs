//! Who uses how much of each device: of this process, or of all processes
//! that name the same `MEMCUDA_SIM_SHARED` file. A process holds a lock on its
//! slot of the file for as long as it lives, so the slot of a killed one is
//! recognised and emptied.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::abi::{Answer, Code};
use crate::settings::MAX_DEVICES;

const MAGIC: u64 = 0x6d65_6d63_7564_6132;
const SLOTS: usize = 256;
/// Lock offsets, beyond the file: the whole table, then each slot.
const TABLE_LOCK: i64 = 1 << 32;

pub struct Ledger {
    /// Bytes of each device.
    total: u64,
    /// This process's bytes of each device.
    own: [u64; MAX_DEVICES],
    table: Option<Table>,
    /// What tells these devices from those of other simulations.
    identity: u64,
}

impl Ledger {
    pub fn new(total: u64, shared: Option<&str>) -> Result<Ledger, String> {
        let table = shared.map(|path| Table::open(path, total)).transpose()?;
        let mut hasher = DefaultHasher::new();
        match shared.and_then(|path| std::fs::canonicalize(path).ok()) {
            Some(path) => path.hash(&mut hasher),
            None => std::process::id().hash(&mut hasher),
        }
        Ok(Ledger {
            identity: hasher.finish(),
            total,
            own: [0; MAX_DEVICES],
            table,
        })
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// The same in every process that shares the devices, and in no other.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// A context was made on a device.
    pub fn arrive(&self, device: usize) {
        if let Some(table) = &self.table {
            table.page.present[table.slot][device].store(1, Relaxed);
        }
    }

    /// The processes that have, or had, a context on a device.
    pub fn processes(&self, device: usize) -> Vec<u32> {
        let Some(table) = &self.table else {
            return vec![std::process::id()];
        };
        table.locked(|| {
            table.empty_dead();
            let slots = table.page.slots.iter().zip(&table.page.present);
            let here = slots.filter(|(_, present)| present[device].load(Relaxed) != 0);
            here.map(|(slot, _)| slot.pid.load(Relaxed) as u32)
                .collect()
        })
    }

    /// Bytes that this process holds of a device.
    pub fn own(&self, device: usize) -> u64 {
        self.own[device]
    }

    /// Bytes in use on a device, by everyone.
    pub fn used(&self, device: usize) -> u64 {
        match &self.table {
            None => self.own[device],
            Some(table) => table.locked(|| {
                table.empty_dead();
                table.sum(device)
            }),
        }
    }

    pub fn charge(&mut self, device: usize, bytes: u64) -> Answer {
        let total = self.total;
        let fits = |used: u64| used.checked_add(bytes).is_some_and(|sum| sum <= total);
        let granted = match &self.table {
            None => fits(self.own[device]),
            Some(table) => table.locked(|| {
                if !fits(table.sum(device)) {
                    table.empty_dead();
                }
                let granted = fits(table.sum(device));
                if granted {
                    table.mine().used[device].fetch_add(bytes, Relaxed);
                }
                granted
            }),
        };
        if !granted {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.own[device] += bytes;
        Ok(())
    }

    pub fn refund(&mut self, device: usize, bytes: u64) {
        self.own[device] -= bytes;
        if let Some(table) = &self.table {
            table.mine().used[device].fetch_sub(bytes, Relaxed);
        }
    }
}

#[repr(C)]
struct Page {
    magic: AtomicU64,
    total: AtomicU64,
    slots: [Slot; SLOTS],
    /// On which devices the process of each slot has made a context.
    present: [[AtomicU64; MAX_DEVICES]; SLOTS],
}

#[repr(C)]
struct Slot {
    pid: AtomicU64,
    used: [AtomicU64; MAX_DEVICES],
}

struct Table {
    file: File,
    page: &'static Page,
    slot: usize,
}

impl Table {
    fn open(path: &str, total: u64) -> Result<Table, String> {
        let problem = |e: std::io::Error| format!("memcuda-sim: MEMCUDA_SIM_SHARED={path}: {e}");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(problem)?;
        file.set_len(size_of::<Page>() as u64).map_err(problem)?;
        // SAFETY: the file is at least as long as the page, which is made of
        // atomics for which every bit pattern is valid; it stays mapped for life.
        let page = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_raw_fd();
            let length = size_of::<Page>();
            let at = libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            );
            if at == libc::MAP_FAILED {
                return Err(problem(std::io::Error::last_os_error()));
            }
            &*at.cast::<Page>()
        };
        let mut table = Table {
            file,
            page,
            slot: SLOTS,
        };
        let found = table.locked(|| {
            if page.magic.load(Relaxed) == 0 {
                page.total.store(total, Relaxed);
                page.magic.store(MAGIC, Relaxed);
            }
            if page.magic.load(Relaxed) != MAGIC || page.total.load(Relaxed) != total {
                return Err("made for another version or MEMCUDA_SIM_MEMORY");
            }
            table.empty_dead();
            let free = page.slots.iter().position(|s| s.pid.load(Relaxed) == 0);
            let free = free.ok_or("256 processes use it")?;
            table.lock(libc::F_SETLK, libc::F_WRLCK, free);
            page.slots[free]
                .pid
                .store(u64::from(std::process::id()), Relaxed);
            Ok(free)
        });
        table.slot = found.map_err(|e| format!("memcuda-sim: MEMCUDA_SIM_SHARED={path}: {e}"))?;
        Ok(table)
    }

    fn mine(&self) -> &Slot {
        &self.page.slots[self.slot]
    }

    fn sum(&self, device: usize) -> u64 {
        let used = |slot: &Slot| slot.used[device].load(Relaxed);
        self.page.slots.iter().map(used).sum()
    }

    /// Empties the slots of processes that are gone.
    fn empty_dead(&self) {
        for (i, slot) in self.page.slots.iter().enumerate() {
            if i != self.slot && slot.pid.load(Relaxed) != 0 && !self.is_locked(i) {
                let words = slot.used.iter().chain(&self.page.present[i]);
                words.for_each(|word| word.store(0, Relaxed));
                slot.pid.store(0, Relaxed);
            }
        }
    }

    fn locked<T>(&self, body: impl FnOnce() -> T) -> T {
        self.lock_range(libc::F_SETLKW, libc::F_WRLCK, TABLE_LOCK);
        let result = body();
        self.lock_range(libc::F_SETLK, libc::F_UNLCK, TABLE_LOCK);
        result
    }

    fn is_locked(&self, slot: usize) -> bool {
        self.lock(libc::F_GETLK, libc::F_WRLCK, slot) != libc::F_UNLCK
    }

    fn lock(&self, command: i32, kind: i32, slot: usize) -> i32 {
        self.lock_range(command, kind, TABLE_LOCK + 1 + slot as i64)
    }

    /// Locks belong to the process: a forked child does not inherit them.
    fn lock_range(&self, command: i32, kind: i32, start: i64) -> i32 {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = start;
        lock.l_len = 1;
        // A signal may end the wait early.
        loop {
            // SAFETY: our own descriptor and a fully set structure.
            let got = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &mut lock) };
            let interrupted = std::io::Error::last_os_error().kind() == ErrorKind::Interrupted;
            if got == 0 || command != libc::F_SETLKW || !interrupted {
                break;
            }
        }
        i32::from(lock.l_type)
    }
}
