//! What torch gave back only because it was asked. Without this library it would have that cached,
//! and programs count on it: what is not free after their largest step is what that step needs. So
//! it is not told to be free until torch has taken as much, gives memory back unasked, empties its
//! cache, or there is no memory for it. Who has asked torch for its counters knows how little it has
//! cached, and is told of all. Only counts: who needs the memory has it as any that is idle.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// More devices than a process can have.
const DEVICES: usize = 128;
static BYTES: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

thread_local! {
    /// Has this thread asked torch for its counters since it last changed these bytes?
    static KNOWS: Cell<bool> = const { Cell::new(false) };
}

/// Torch gave memory back: because it was `asked`, or of its own.
pub fn gave(device: u32, bytes: u64, asked: bool) {
    match asked {
        true => {
            KNOWS.set(false);
            of_device(device).fetch_add(bytes, Relaxed);
        }
        false => end(device),
    }
}

/// Torch has got memory.
pub fn took(device: u32, bytes: u64) {
    let all = of_device(device);
    if all.load(Relaxed) != 0 {
        KNOWS.set(false);
        let less = |all: u64| Some(all.saturating_sub(bytes));
        let _ = all.fetch_update(Relaxed, Relaxed, less);
    }
}

/// Torch has given back what it had cached, or would have had to.
pub fn end(device: u32) {
    let all = of_device(device);
    if all.load(Relaxed) != 0 {
        all.store(0, Relaxed);
    }
}

/// The same of all devices.
pub fn end_all() {
    BYTES.iter().for_each(|all| all.store(0, Relaxed));
}

/// Torch was asked for its counters on this thread.
pub fn know() {
    KNOWS.set(true);
}

/// Bytes of which this thread is not to be told that they are free.
pub fn bytes(device: u32) -> u64 {
    match KNOWS.get() {
        true => 0,
        false => of_device(device).load(Relaxed),
    }
}

fn of_device(device: u32) -> &'static AtomicU64 {
    &BYTES[device as usize % DEVICES]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_torch_was_asked_for_is_withheld_until_it_has_as_much_or_gives_back_unasked() {
        let (device, other) = (101, 102);
        gave(device, 600, true);
        gave(other, 1, true);
        took(device, 150);
        assert_eq!((bytes(device), bytes(other)), (450, 1));
        took(device, 500);
        assert_eq!((bytes(device), bytes(other)), (0, 1));
        gave(device, 600, true);
        gave(device, 1, false);
        assert_eq!((bytes(device), bytes(other)), (0, 1));
        end(other);
        assert_eq!(bytes(other), 0);
    }

    #[test]
    fn a_thread_that_knows_torchs_counters_is_told_of_all_until_they_change() {
        let device = 103;
        gave(device, 600, true);
        know();
        assert_eq!(bytes(device), 0);
        let elsewhere = std::thread::spawn(move || bytes(device));
        assert_eq!(elsewhere.join().unwrap(), 600);
        took(device, 50);
        assert_eq!(bytes(device), 550);
        know();
        gave(device, 50, true);
        assert_eq!(bytes(device), 600);
    }
}
