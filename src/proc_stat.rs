//! What the kernel tells of a process in one line (`/proc/PID/stat`). Its second field, the
//! name, may hold anything, parentheses too, and is no text of Rust's: only the fields
//! behind it are read.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::str::FromStr;

/// When a process started, in clock ticks since boot.
pub const STARTED: usize = 22;
/// One letter: `R`, `S`, `Z` and others.
pub const STATE: usize = 3;
/// How many threads it has; 1 where only the number of one that ended is left.
pub const THREADS: usize = 20;

/// A field behind the second, as the kernel's manual counts them, of a process by its
/// number or as `self`; `None` where it cannot be seen.
pub fn field<T: FromStr>(process: impl Display, number: usize) -> Option<T> {
    // One read: the fields up to the one that is wanted are shorter than this.
    let mut stat = [0; 1024];
    let mut file = File::open(format!("/proc/{process}/stat")).ok()?;
    let length = file.read(&mut stat).ok()?;
    let stat = String::from_utf8_lossy(&stat[..length]);
    let behind_name = stat.rsplit_once(')')?.1;
    let mut fields = behind_name.split_ascii_whitespace();
    fields.nth(number - 3)?.parse().ok()
}

/// Does a thread of this process sleep?
#[cfg(test)]
pub fn sleeps(thread: rustix::process::Pid) -> bool {
    field(format_args!("self/task/{thread}"), STATE) == Some('S')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_any_name_tells_when_it_started() {
        let place = "/proc/self/comm";
        let started = || field::<u64>("self", STARTED);
        let (name, before) = (std::fs::read(place).unwrap(), started());
        std::fs::write(place, b"a) \xff\x1b").unwrap();
        let odd = started();
        std::fs::write(place, name).unwrap();
        assert!(before.is_some());
        assert_eq!(odd, before);
        assert!(field::<char>("self", STATE).is_some());
        assert_eq!(field::<u64>(u32::MAX, STARTED), None);
    }
}
