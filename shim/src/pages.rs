//! The pages below torch's expandable segments, in this process: made with the
//! first one, told apart from the driver's own handles by a number that no
//! driver gives, and counted on the page of statistics together with the pool.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Code, Context, Handle, Stream};
use memcuda_core::pages::{Found, Home, Lease, Mark, Pages, Totals};
use memcuda_core::pool::StreamKey;

use crate::device::Device;
use crate::engine::Engine;
use crate::pool;
use crate::record::Caller;

/// The first 16 bits of a handle that stands for a page. The driver's own are
/// small numbers or addresses of the host, which have none of them.
const MARK: u64 = 0x6d63;
/// Where torch asked for a page last: its library does not move.
static SITE: AtomicUsize = AtomicUsize::new(0);
/// Bits of a lease in such a handle; above them the device's ordinal.
const LEASE_BITS: u32 = 40;

/// The program's reservations: first address, bytes.
static RESERVED: Mutex<BTreeMap<Address, u64>> = Mutex::new(BTreeMap::new());

fn reservations() -> MutexGuard<'static, BTreeMap<Address, u64>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program has reserved addresses.
pub fn reserved(at: Address, bytes: u64) {
    reservations().insert(at, bytes);
}

/// It gives them up; how many bytes there were.
pub fn given_up(engine: &Engine, at: Address) -> Option<u64> {
    let bytes = reservations().remove(&at)?;
    engine.pages().for_each(|pages| pages.unreserved(at, bytes));
    Some(bytes)
}

/// What a page that is mapped now at an address belongs to.
pub fn home(engine: &Engine, at: Address) -> Home {
    let before = reservations()
        .range(..=at)
        .next_back()
        .map(|(a, b)| (*a, *b));
    let around = before.filter(|(start, bytes)| at - start < *bytes);
    Home {
        // Of one that is not known each page stands alone.
        reservation: around.map_or(at, |(start, _)| start),
        context: engine.calls.current().unwrap_or_default(),
    }
}

/// The pages of a device, whose context is current; `None` where it has no pool,
/// for then nobody would give its memory back.
pub fn of<'a>(engine: &Engine, device: &'a Device) -> Option<&'a Pages<Real>> {
    pool::of(engine, device)?;
    Some(device.pages_or(|| {
        let (page, ordinal, sums) = (engine.page, device.ordinal, device.sums);
        let frees = device.foreign_frees();
        let publish = move |totals: &Totals| {
            sums.pages(totals, |sum| {
                page.publish(ordinal, sum, frees.load(Ordering::Relaxed))
            });
        };
        let contexts = Arc::clone(&engine.contexts);
        let pages = Pages::new(engine.driver, ordinal, contexts, Some(Box::new(publish)));
        if engine.config.oom_report.is_some() {
            pages.keep_timeline();
        }
        pages
    }))
}

/// Torch asks for a page from here.
pub fn asked_from(site: usize) {
    SITE.store(site, Ordering::Relaxed);
}

/// Who maps and unmaps pages, for recordings: whoever asks for them.
pub fn caller() -> Caller {
    let site = SITE.load(Ordering::Relaxed);
    Caller {
        site: (site != 0).then_some(site),
        ..Caller::UNKNOWN
    }
}

/// What a program is told is the handle of a page.
pub fn handle(device: &Device, lease: Lease) -> Handle {
    let lease = lease.0 & ((1 << LEASE_BITS) - 1);
    Handle(MARK << 48 | u64::from(device.ordinal) << LEASE_BITS | lease)
}

/// The page that a handle stands for, and whose it is; `None` for the driver's own.
pub fn of_handle(engine: &Engine, handle: Handle) -> Option<(&Device, &Pages<Real>, Lease)> {
    if handle.0 >> 48 != MARK {
        return None;
    }
    let ordinal = (handle.0 >> LEASE_BITS & 0xff) as u32;
    let device = engine.by_ordinal(ordinal)?;
    let lease = Lease(handle.0 & ((1 << LEASE_BITS) - 1));
    Some((device, device.pages()?, lease))
}

thread_local! {
    /// The wait that torch would have made on this thread before it unmaps: on which
    /// device, and what stands for it.
    static PUT_OFF: Cell<Option<(u32, Mark)>> = const { Cell::new(None) };
    /// The last wait on this thread, if it was for a default stream: in which context.
    static DEFAULT: Cell<Option<(Context, Stream)>> = const { Cell::new(None) };
}

/// A wait for a stream is asked for on this thread.
pub fn waits_for(engine: &Engine, stream: Stream) {
    let is_default = stream.is_default();
    let context = is_default.then(|| engine.calls.current().ok()).flatten();
    DEFAULT.set(context.map(|context| (context, stream)));
}

/// Torch that empties the caches of all devices waits for the default stream of the
/// current one, whosever pages it unmaps next (pytorch/pytorch#196258): those of another
/// device are waited for in its own default stream.
pub fn wait_at_home(engine: &Engine, kept: &Pages<Real>, at: Address) {
    if let Some((context, stream)) = DEFAULT.get()
        && engine.device_of(context).map(|device| device.ordinal) != Ok(kept.device())
        && let Found::Run(run) = kept.find(at)
        && let Some(mark) = kept.instead_of_waiting(StreamKey::new(run.context, stream, 0))
    {
        kept.wait(mark);
    }
}

/// The context whose streams are all on which graphs may replay that were captured in
/// this one: the primary one, of which it may be a view.
pub fn whole(engine: &Engine, device: &Device, context: Context) -> Context {
    let calls = &engine.calls;
    let primary = calls.relaxed(|| calls.primary(device.handle));
    primary.ok().flatten().unwrap_or(context)
}

/// Puts the wait off that torch makes for a stream before it unmaps pages; false where
/// it must be made.
pub fn put_off(engine: &Engine, stream: Stream) -> bool {
    PUT_OFF.set(None);
    if stream == Stream::PER_THREAD {
        return false;
    }
    let Ok((context, device)) = engine.of_stream(stream) else {
        return false;
    };
    let mark = device
        .pages()
        .filter(|pages| pages.is_sound())
        .and_then(|pages| pages.instead_of_waiting(StreamKey::new(context, stream, 0)));
    PUT_OFF.set(mark.map(|mark| (device.ordinal, mark)));
    mark.is_some()
}

/// What stands for the work on pages of a device that are unmapped now on this thread;
/// `None` where it was waited for, as it is here if their stream is another device's.
pub fn last_use(engine: &Engine, device: &Device) -> Option<Mark> {
    let (ordinal, mark) = PUT_OFF.get()?;
    if ordinal != device.ordinal {
        make_up_for_the_wait(engine);
        return None;
    }
    Some(mark)
}

/// Makes the wait that was put off on this thread: what it was for stays mapped nowhere.
pub fn make_up_for_the_wait(engine: &Engine) {
    let Some((ordinal, mark)) = PUT_OFF.take() else {
        return;
    };
    let device = engine.by_ordinal(ordinal);
    if let Some(pages) = device.and_then(Device::pages) {
        pages.wait(mark);
    }
}

/// Torch has given up what it was asked for, or waits itself.
pub fn none_put_off() {
    PUT_OFF.set(None);
}

/// No page is left mapped in this range that nobody uses.
pub fn leave(engine: &Engine, at: Address, bytes: u64) -> Code {
    let left = engine.pages().map(|pages| pages.leave(at, bytes));
    left.fold(Ok(()), std::result::Result::and)
        .err()
        .unwrap_or(Code::SUCCESS)
}

/// The pages in this range may be opened by others from now on.
pub fn share(engine: &Engine, at: Address, bytes: u64) {
    engine
        .pages()
        .for_each(|pages| pages.share_range(at, bytes));
}
