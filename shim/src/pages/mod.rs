//! The pages below torch's expandable segments, in this process: made with the
//! first one, told apart from the driver's own handles by a number that no
//! driver gives, and counted on the page of statistics together with the pool.

pub mod gone;
pub mod passed_on;
pub mod put_off;
pub mod reservations;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Address, Code, Context, Handle};
use memcuda_core::pages::{Lease, Pages, Totals};

use crate::engine::Engine;
use crate::engine::device::Device;
use crate::pool;
use crate::record::Caller;

/// The first 16 bits of a handle that stands for a page. The driver's own are
/// small numbers or addresses of the host, which have none of them.
const MARK: u64 = 0x6d63;
/// Where torch asked for a page last: its library does not move.
static SITE: AtomicUsize = AtomicUsize::new(0);
/// Bits of a lease in such a handle; above them the device's ordinal.
const LEASE_BITS: u32 = 40;

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

/// The context whose streams are all on which graphs may replay that were captured in
/// this one: the primary one, of which it may be a view.
pub fn whole(engine: &Engine, device: &Device, context: Context) -> Context {
    engine.primary_of(device).unwrap_or(context)
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
