//! What the library's own thread does (`worker`): it gives idle memory to other
//! processes. It answers those that ask (`neighbours`), and what lies idle beyond
//! `MEMCUDA_IDLE` it gives back unasked while another process is on the device,
//! for those that cannot ask, or where the memory is the host's. Alone on a device
//! that has its own a program keeps everything. It also hears what the keeper of shared memory says (`share::keeper`), finds it
//! again, shows the process's picture to who asks for it, and makes the file of a
//! recording longer (`record`).
//!
//! What counts as idle is what nobody used for about a second: the least that
//! was idle at any moment of it. A program that needs its memory again and
//! again within that time never loses it; a longer pause costs it mappings
//! again, some 50 us for each handle.

use std::cell::Cell;
use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use memcuda_core::driver::real::Real;
use memcuda_core::pool::Pool;
use memcuda_core::units::GIB;
use memcuda_core::waiting::nap;

use crate::engine::Engine;
use crate::engine::device::Device;
use crate::engine::worker;
use crate::neighbours::{Answer, Door};
use crate::picture;
use crate::process::threads;
use crate::room::nvml;
use crate::room::others::Others;
use crate::share::{exports, keeper};
use crate::torch;

/// How often the thread looks while anything is idle, and while nothing is.
const LOOK: Duration = Duration::from_millis(250);
const REST: Duration = Duration::from_secs(1);
/// Looks over which memory must have been idle.
const LOOKS: usize = 4;
/// Bytes given back before a program's thread may have the pool in between.
const PASS: u64 = GIB;

/// In a forked child there is no such thread, nobody to answer and nothing to count.
pub fn in_child(engine: &Engine) {
    worker::stop();
    let recorded = engine.recorder.iter();
    let recorded = recorded.flat_map(|recorder| recorder.file().descriptors());
    let page = engine.page.descriptor();
    for descriptor in doors(engine).chain(recorded).chain(page) {
        // SAFETY: the child's copy of a descriptor that it never uses.
        unsafe { libc::close(descriptor) };
    }
}

/// What the thread does until it stops.
pub fn run(engine: &Engine) {
    engine.devices.iter().for_each(Device::open_door);
    let mut watched: Vec<Watched> = engine.devices.iter().map(Watched::new).collect();
    let mut deaf = false;
    while !worker::is_stopped() {
        if let Some(recorder) = &engine.recorder {
            recorder.file().look();
        }
        let idle = engine.pools().any(|pool| pool.idle() > 0)
            || engine.devices.iter().any(|device| device.idle_pages() > 0);
        let longest = if deaf {
            // Whoever stands at the door would be told of again at once.
            nap(LOOK);
            Duration::ZERO
        } else {
            let timed = engine.config.oom_report.is_some() && engine.pools().next().is_some();
            let given = exports::is_to_be_given();
            let shared = keeper::is_missing() || given || exports::any_held();
            let soon = idle || timed || shared || is_mute(engine);
            if soon { LOOK } else { REST }
        };
        let rung = wait(engine, longest);
        // Nobody hears the keeper while somebody asks it.
        deaf = !keeper::look(engine);
        exports::give_again(engine);
        leave(engine);
        let ended = threads::ended();
        if !ended.is_empty() {
            engine.pools().for_each(|pool| pool.threads_end(&ended));
        }
        for watched in &mut watched {
            deaf |= watched.look(engine, &rung).is_err();
        }
    }
}

/// Leaves what was freed to those who have it open, where that had to wait.
fn leave(engine: &Engine) {
    if exports::any_held()
        && let Some(_turn) = worker::turn()
    {
        exports::leave(engine);
    }
}

fn doors(engine: &Engine) -> impl Iterator<Item = i32> {
    let doors = engine.devices.iter().filter_map(Device::door);
    doors.filter_map(Door::descriptor)
}

fn bell(engine: &Engine) -> Option<i32> {
    engine.recorder.as_ref()?.file().bell()
}

/// Is there a recording that cannot ring, as the program has closed its bell?
fn is_mute(engine: &Engine) -> bool {
    engine.recorder.is_some() && bell(engine).is_none()
}

/// Where somebody is, by their descriptors.
enum Rung {
    At(Vec<i32>),
    /// Nobody knows.
    Anywhere,
}

impl Rung {
    /// May somebody be at this door? A filter that the program has set since may end it for a
    /// call that finds nobody.
    fn may_be_at(&self, door: &Door) -> bool {
        match self {
            Rung::At(all) => door.descriptor().is_some_and(|it| all.contains(&it)),
            Rung::Anywhere => true,
        }
    }
}

/// Waits until somebody asks, or so long.
fn wait(engine: &Engine, longest: Duration) -> Rung {
    let mut heard: Vec<libc::pollfd> = doors(engine)
        .chain(keeper::descriptor())
        .chain(bell(engine))
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let (count, milliseconds) = (heard.len() as libc::nfds_t, longest.as_millis() as i32);
    // SAFETY: the array is as long as said.
    let waited = unsafe { libc::poll(heard.as_mut_ptr(), count, milliseconds) };
    // It is refused where the process may have no file open at all: whoever asks is late.
    if waited < 0 && Error::last_os_error().kind() != ErrorKind::Interrupted {
        nap(LOOK);
        return Rung::Anywhere;
    }
    let told = heard.iter().filter(|one| one.revents != 0);
    Rung::At(told.map(|one| one.fd).collect())
}

/// What the thread knows of a device.
struct Watched<'a> {
    device: &'a Device,
    others: Others,
    /// The least that was idle in the stretch of time before each of the last
    /// looks, in bytes, less what was given away since; the latest stretch still runs.
    least: [Cell<u64>; LOOKS],
    latest: usize,
    since: Instant,
}

impl<'a> Watched<'a> {
    fn new(device: &'a Device) -> Self {
        Self {
            device,
            others: Others::default(),
            least: Default::default(),
            latest: 0,
            since: Instant::now(),
        }
    }

    /// Fails where somebody asks and cannot be let in.
    fn look(&mut self, engine: &Engine, rung: &Rung) -> std::io::Result<()> {
        let Some(pool) = self.device.pool() else {
            return Ok(());
        };
        self.note(pool);
        let mut heard = Ok(());
        if let Some(door) = self.device.door().filter(|door| rung.may_be_at(door)) {
            let lend = |bytes: u64| {
                let given = self.give(engine, pool, bytes.min(self.quiet()));
                Answer {
                    given,
                    soon: pool.whole_idle() + self.device.idle_pages(),
                }
            };
            // What is not free to this program is not to others, who get whole handles.
            let offer = || {
                let own = self.device.free_to_have();
                let withheld = torch::withheld(self.device.ordinal);
                let whole = pool.to_give() + self.device.idle_pages();
                self.quiet().min(own.saturating_sub(withheld)).min(whole)
            };
            heard = door.answer(lend, offer, || picture::sealed(engine));
        }
        if self.since.elapsed() < LOOK {
            return heard;
        }
        let keep = engine.config.idle.of(self.device.total);
        let beyond = self.quiet().saturating_sub(keep);
        // Where the driver did not tell its size, nobody knows what to keep.
        if self.device.total > 0 && beyond > 0 && self.has_company(engine, pool) {
            let given = self.give(engine, pool, beyond);
            if given > 0 {
                crate::log!(
                    Debug,
                    "device {}: {given} idle bytes given back, others are on it",
                    self.device.ordinal
                );
            }
        }
        self.latest = (self.latest + 1) % LOOKS;
        self.least[self.latest].set(u64::MAX);
        self.note(pool);
        self.since = Instant::now();
        heard
    }

    /// Are there others on the device? The host is, which cannot ask, where the memory is its own.
    fn has_company(&mut self, engine: &Engine, pool: &Pool<Real>) -> bool {
        if self.device.is_integrated {
            return true;
        }
        nvml::prepare();
        self.others.are_on(engine, self.device, pool)
    }

    fn note(&mut self, pool: &Pool<Real>) {
        let least = &self.least[self.latest];
        let pages = self.device.pages().map_or(0, |pages| pages.least_idle());
        least.set((pool.least_idle() + pages).min(least.get()));
    }

    /// Bytes that nobody has used for about a second.
    fn quiet(&self) -> u64 {
        self.least.iter().map(Cell::get).min().unwrap_or(0)
    }

    /// Gives about so many bytes back. What lies idle beside them was used meanwhile.
    fn give(&self, engine: &Engine, pool: &Pool<Real>, bytes: u64) -> u64 {
        let given = give(engine, self.device, pool, bytes);
        for least in &self.least {
            least.set(least.get().saturating_sub(given));
        }
        given
    }
}

/// Gives about so many bytes back, of what needs no wait: pages first.
fn give(engine: &Engine, device: &Device, pool: &Pool<Real>, bytes: u64) -> u64 {
    let mut given = 0;
    while given < bytes {
        let Some(_turn) = worker::turn() else { break };
        let part = PASS.min(bytes - given);
        let pass = engine.within(pool, || {
            let pages = device
                .pages()
                .map_or(0, |pages| pages.give_back(part, Duration::ZERO));
            match pages {
                0 => pool.give_back(part, Duration::ZERO),
                pages => pages,
            }
        });
        match pass {
            Some(released) if released > 0 => given += released,
            _ => break,
        }
    }
    given
}
