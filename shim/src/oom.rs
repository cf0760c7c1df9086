//! The report of an allocation that failed for lack of memory
//! (`MEMCUDA_OOM_REPORT`): the picture of the process and what was asked for,
//! written by the thread that failed, before the program hears of it. Never
//! changes what the program hears, and takes a bounded time and room: programs
//! catch the error and try again, ten thousand times if they like.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memcuda_core::driver::Driver;
use memcuda_core::epoch;
use memcuda_core::lock::lock;
use memcuda_core::picture::{self, Refused, bytes};
use memcuda_core::pool::StreamKey;

use crate::engine::Engine;
use crate::engine::device::Device;
use crate::libraries::caller;
use crate::picture::take;
use crate::pool;
use crate::process::signals;

/// Most files of a process. Behind them the last one is written anew, so that
/// the failure which ended a program is among them.
const FILES: usize = 8;
/// Reports at once, and how long until there may be one more.
const BURST: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);
/// Within this time the same thread that fails to get as much again is at the
/// same try: frameworks free what they cache and ask again.
const AGAIN: Duration = Duration::from_secs(10);

/// What failed, and which file tells of it.
struct Occasion {
    what: (u32, u32, u64),
    latest: Instant,
    tries: u32,
}

struct Books {
    /// One for each file, in the order of their numbers.
    occasions: Vec<Occasion>,
    /// Reports that may be written now.
    spare: u32,
    earned: Option<Instant>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    occasions: Vec::new(),
    spare: BURST,
    earned: None,
});
static REFUSALS: AtomicU64 = AtomicU64::new(0);

/// Reports a request of this thread that has just failed.
#[cold]
pub fn report(engine: &Engine, device: &Device, bytes: u64, key: Option<StreamKey>) {
    let asked = pool::take_asked();
    let Some(directory) = &engine.config.oom_report else {
        return;
    };
    let refusals = REFUSALS.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: has no preconditions.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let what = (thread, device.ordinal, bytes);
    let Some((number, tries)) = enter(&BOOKS, what, Instant::now()) else {
        return;
    };
    let refused = Refused {
        device: device.ordinal,
        asked_bytes: bytes,
        stream: key.map(picture::Stream::from),
        thread,
        thread_name: caller::thread(),
        tries,
        driver_free_bytes: driver_free(engine, device),
        asked_others: asked.map_or(0, |(_, count)| count),
        waited_us: asked.map_or(0, |(since, _)| since.elapsed().as_micros() as u64),
        refusals,
    };
    let picture = take(engine, Some(refused));
    let path = directory.join(name(number));
    let written = bytes::encode(&picture)
        .ok_or(std::io::ErrorKind::OutOfMemory.into())
        .and_then(|bytes| write(&path, thread, &bytes));
    match written {
        Ok(()) => crate::log_once!(
            Warn,
            "out of memory: {bytes} bytes on device {}; who holds what: memcuda explain {}",
            device.ordinal,
            path.display()
        ),
        Err(error) => crate::log_once!(
            Warn,
            "MEMCUDA_OOM_REPORT={}: no report can be written there: {error}",
            directory.display()
        ),
    }
}

/// The number of the file for what failed, and the number of this try; `None`
/// where there have been too many reports a moment ago.
fn enter(books: &Mutex<Books>, what: (u32, u32, u64), now: Instant) -> Option<(usize, u32)> {
    let mut books = lock(books);
    let books = &mut *books;
    let same = |o: &Occasion| o.what == what && now.duration_since(o.latest) < AGAIN;
    let mut known = books.occasions.iter().position(same);
    if let Some(at) = known {
        books.occasions[at].latest = now;
        books.occasions[at].tries += 1;
    }
    let since = *books.earned.get_or_insert(now);
    let earned = now.duration_since(since).as_secs() / PAUSE.as_secs();
    if earned > 0 {
        books.earned = Some(now);
        books.spare = books.spare.saturating_add(earned as u32).min(BURST);
    }
    books.spare = books.spare.checked_sub(1)?;
    if known.is_none() {
        books.occasions.truncate(FILES - 1);
        books.occasions.push(Occasion {
            what,
            latest: now,
            tries: 1,
        });
        known = Some(books.occasions.len() - 1);
    }
    let at = known?;
    Some((at + 1, books.occasions[at].tries))
}

/// The name of a report; another one for every process.
fn name(number: usize) -> PathBuf {
    static SECONDS: AtomicU64 = AtomicU64::new(0);
    let now = epoch::now().as_secs().max(1);
    let first = SECONDS.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    let seconds = first.map_or_else(|earlier| earlier, |_| now);
    format!("oom-{seconds}-{}-{number}.memcuda", std::process::id()).into()
}

/// Free memory as the driver counts it, which it tells in a capture, too.
fn driver_free(engine: &Engine, device: &Device) -> Option<u64> {
    let pool = device.pool()?;
    let ask = || pool.driver().memory_info(device.ordinal).ok();
    let (free, _) = engine.within(pool, ask)??;
    Some(free)
}

/// Writes a file that is there whole or not at all.
fn write(path: &Path, thread: u32, bytes: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let _held = signals::hold();
    let half = directory.join(format!(".oom-{}-{thread}.half", std::process::id()));
    let written = File::create(&half)
        .and_then(|mut file| file.write_all(bytes).map(|()| file))
        .and_then(close)
        .and_then(|()| fs::rename(&half, path));
    written.inspect_err(|_| drop(fs::remove_file(&half)))
}

/// Closes a file: over a network it may be said only then that there was no room. That all of it
/// is on a disk is not waited for, which takes long where others write.
fn close(file: File) -> std::io::Result<()> {
    // SAFETY: the descriptor is nobody else's any more.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Mutex<Books> {
        Mutex::new(Books {
            occasions: Vec::new(),
            spare: BURST,
            earned: None,
        })
    }

    #[test]
    fn tries_of_one_thread_for_as_much_are_one_occasion() {
        let (books, now) = (books(), Instant::now());
        assert_eq!(enter(&books, (1, 0, 100), now), Some((1, 1)));
        assert_eq!(enter(&books, (1, 0, 100), now), Some((1, 2)));
        assert_eq!(enter(&books, (2, 0, 100), now), Some((2, 1)));
        assert_eq!(enter(&books, (1, 0, 200), now), Some((3, 1)));
        assert_eq!(enter(&books, (1, 0, 100), now), None, "four at once");
        let later = now + PAUSE;
        assert_eq!(enter(&books, (1, 0, 100), later), Some((1, 4)));
        let much_later = later + 2 * AGAIN;
        assert_eq!(enter(&books, (1, 0, 100), much_later), Some((4, 1)));
        let more = |_: &u64| enter(&books, (2, 0, 100), much_later).is_some();
        assert_eq!(
            (0..10).filter(more).count(),
            3,
            "four at once, after however long"
        );
    }

    #[test]
    fn a_file_that_is_written_anew_is_the_same_one() {
        let first = name(FILES);
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(name(FILES), first);
    }

    #[test]
    fn a_program_that_fails_again_and_again_has_few_reports_and_the_latest() {
        let (books, mut now) = (books(), Instant::now());
        let (mut reports, mut last) = (0, 0);
        for bytes in 0..10_000 {
            now += Duration::from_millis(10);
            if let Some((number, tries)) = enter(&books, (1, 0, bytes), now) {
                assert!(number <= FILES && tries == 1);
                (reports, last) = (reports + 1, number);
            }
        }
        assert_eq!(last, FILES);
        assert!((90..=104).contains(&reports), "{reports} in 100 s");
        assert_eq!(books.lock().unwrap().occasions.len(), FILES);
    }
}
