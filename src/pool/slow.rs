//! How a request is served that the quick path does not serve: one builder at a time, by a
//! search, a stitch or growth, and last by waiting for what is pending. Decides in which
//! order these are tried; what a stitch is made of is the plan's.

use super::block::{Need, Window};
use super::plan::Plan;
use super::reach::Reach;
use super::request::{Effort, Lack, Order, Refusal, Request};
use super::search::Usable;
use super::serve::{Miss, is_small, need as need_of};
use super::slab::{SLAB, TRIES};
use super::state::State;
use super::streams::Use;
use super::wait::Waited;
use super::{Pool, StateGuard};
use crate::config::Policy;
use crate::driver::{Address, Code, Context, Driver, Result, cancel};
use crate::units::HANDLE;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What takes longer beyond the quick path is counted as a stall.
pub const STALL: Duration = Duration::from_millis(1);

/// How often a request waits for what is pending before there is no memory for it.
const WAITS: u32 = 8;

/// Why the slow way ended without memory.
enum Stuck {
    Refused(Refusal),
    /// Out of memory.
    Short(Lack),
    /// Calls of other threads may be ending these contexts (a release need not be the last
    /// one), and meanwhile nothing can be ordered or waited for there.
    Undecided(Vec<Context>),
}

impl From<Refusal> for Stuck {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Driver(Code::OUT_OF_MEMORY) => Stuck::Short(Lack::Memory),
            refusal => Stuck::Refused(refusal),
        }
    }
}

impl From<Code> for Stuck {
    fn from(code: Code) -> Self {
        Refusal::from(code).into()
    }
}

impl<D: Driver> Pool<D> {
    /// Everything beyond the quick path, whose time is taken here.
    pub(super) fn alloc_timed(&self, request: &Request) -> std::result::Result<Address, Refusal> {
        let _held = cancel::hold();
        let began = Instant::now();
        let served = self.alloc_patiently(request);
        self.count_stall(began);
        served
    }

    /// Counts what the program has waited for since, if that was long.
    pub fn count_stall(&self, began: Instant) {
        let spent = began.elapsed();
        if spent > STALL {
            let mut state = self.lock();
            state.stats.stalls += 1;
            state.stats.stall_ns += spent.as_nanos() as u64;
            self.publish(&mut state);
        }
    }

    /// The slow way, and where the driver is out of memory once more for as
    /// long as others may make room.
    fn alloc_patiently(&self, request: &Request) -> std::result::Result<Address, Refusal> {
        // To try it would take all that is left from others, for as long as that lasts.
        let bounds = [self.settings.total, self.settings.limit];
        let beyond = |bound| bound < request.bytes;
        let never = request.effort == Effort::Growth && bounds.into_iter().flatten().any(beyond);
        let mut failed = None;
        loop {
            let served = match never {
                true => Err(Stuck::Short(Lack::Memory)),
                false => self.alloc_slowly(request),
            };
            let lack = match served {
                Ok(at) => return Ok(at),
                Err(Stuck::Refused(refusal)) => return Err(refusal),
                Err(Stuck::Undecided(contexts)) => {
                    self.until_decided(contexts, request.context)?;
                    continue;
                }
                Err(Stuck::Short(lack)) => lack,
            };
            let since = *failed.get_or_insert_with(Instant::now);
            let starving = self.settings.starving.as_ref();
            let within_limit = (self.settings.limit).is_none_or(|limit| {
                let (held, idle) = self.beside();
                let used = self.counted().saturating_sub(self.idle()) + held - idle;
                used + request.bytes <= limit
            });
            let give = || starving.is_some_and(|ask| ask(request.bytes, since, lack));
            if never || !within_limit || !give() {
                let mut state = self.lock();
                state.stats.out_of_memory += 1;
                self.publish(&mut state);
                return Err(Code::OUT_OF_MEMORY.into());
            }
        }
    }

    /// Waits until it is known of these contexts whether they have ended; fails where
    /// the request's own one has.
    fn until_decided(&self, contexts: Vec<Context>, own: Context) -> Result<()> {
        for context in contexts {
            if !self.stays(context) && context == own {
                return Err(Code::CONTEXT_IS_DESTROYED);
            }
        }
        Ok(())
    }

    /// Everything else, one builder at a time: a search over all windows, a
    /// stitch of what is free, growth, and last a wait for what is pending,
    /// during which others build.
    fn alloc_slowly(&self, request: &Request) -> std::result::Result<Address, Stuck> {
        let mut builder = self.builder();
        // For memory, and for bytes that others still use.
        let mut waits = [0; 2];
        let mut waited = Waited::default();
        let mut reach = Reach::Ordered;
        let mut given = 0;
        loop {
            let mut state = self.lock();
            state.stats.searches += 1;
            state.growing.searched();
            state.lack = Lack::Memory;
            let own = state.stream(request.order);
            state.streams.watch_others(own);
            // What cannot be asked now is not ready.
            let _ = self.make_ready(&mut state);
            if is_small(request) {
                state.settle_small();
            }
            // Somebody may have freed the very thing meanwhile.
            let (mut state, served) =
                match self.alloc_quickly(&mut state, request, Miss::Unknown)? {
                    Some(at) => {
                        state.stats.hits += 1;
                        (state, Ok(at))
                    }
                    None => self.alloc_window(state, request, reach),
                };
            let refused = match served {
                Ok(at) => {
                    self.publish(&mut state);
                    return Ok(at);
                }
                Err(refused) => refused,
            };
            let unready = match refused {
                Refusal::Driver(Code::NOT_READY) => true,
                Refusal::Driver(Code::OUT_OF_MEMORY) => false,
                refused => {
                    self.publish(&mut state);
                    return Err(refused.into());
                }
            };
            // Bytes that cannot be ordered behind their uses (a capture, or another
            // thread's default stream) are no reason to wait, but to grow. A segment's
            // are: the host waits for them sooner than it holds more.
            let next = reach.after(unready, &request.order);
            let waits_first = matches!(request.order, Order::Segment(_));
            if let Some(next) = next.filter(|_| !waits_first) {
                reach = next;
                continue;
            }
            let waits = &mut waits[usize::from(unready)];
            // Others may have freed something else in the order of a stream meanwhile.
            let most = match unready || state.pending() == 0 {
                true => 1,
                false => WAITS,
            };
            if *waits < most && (unready || !self.is_hopeless(&state, request.bytes)) {
                *waits += 1;
                if !unready {
                    state.growing.ends();
                }
                let ending = state.take_out_stitches();
                drop(state);
                if ending.is_empty() {
                    // Others need not wait for what this one needs.
                    drop(builder);
                    waited = self.wait_for_pending();
                    builder = self.builder();
                } else {
                    waited = self.wait_for_pending();
                    self.end_stitches(ending);
                }
                continue;
            }
            if let Some(next) = next {
                reach = next;
                continue;
            }
            if state.lacks_mappings || self.settings.policy == Policy::Direct {
                // Idle chunks have some, and page tables are memory, too. Under `direct` nothing
                // else comes of what is idle since nobody has it open any more.
                drop(state);
                given = self.let_go(2 * given + 1);
                if given > 0 {
                    continue;
                }
                state = self.lock();
            }
            self.publish(&mut state);
            let mut undecided = waited.leaving;
            if state.streams.health.is_leaving(request.context) {
                undecided.push(request.context);
            }
            if !undecided.is_empty() {
                return Err(Stuck::Undecided(undecided));
            }
            // Of what could not be waited for nobody knows whether it is free.
            waited.known?;
            return Err(Stuck::Short(state.lack));
        }
    }

    /// Asks which uses are over, and lets the chunks know what is free.
    pub(super) fn make_ready(&self, state: &mut State) -> Result<()> {
        let polled = state.streams.poll(&self.driver);
        state.settle_windows();
        polled
    }

    /// A window for a request (or for the slab that a small one needs).
    fn alloc_window<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        request: &Request,
        reach: Reach,
    ) -> (StateGuard<'a>, std::result::Result<Address, Refusal>) {
        let stream = state.stream(request.order);
        let small = is_small(request) && self.settings.policy != Policy::Direct;
        let need = match small {
            true => Need {
                bytes: SLAB,
                align: SLAB,
                ..need_of(request, stream)
            },
            false => need_of(request, stream),
        };
        if !small {
            state.settle_small();
            state.reap_slabs(0, usize::MAX);
        }
        let (mut state, mut found) = self.find_window(state, need, request, reach);
        let has_none = found == Err(Code::OUT_OF_MEMORY.into());
        let has_no_slab = small && has_none;
        if has_none && let Some(at) = state.lend_any_small(request, stream) {
            return (state, Ok(at));
        }
        if has_no_slab || has_none && need.one_page {
            // A window of its own may still be free, or one that lies in two pages.
            let mut own = need_of(request, stream);
            own.one_page = false;
            (state, found) = self.find_window(state, own, request, reach);
        }
        let window = match found {
            Ok(window) => window,
            Err(refused) => return (state, Err(refused)),
        };
        if !small || has_no_slab {
            let at = state.lend(request, window);
            return (state, Ok(at));
        }
        // Ordered behind earlier uses for this stream alone, so the slab's
        // bytes count as used by it.
        let tag = |stream| {
            let late = reach == Reach::Late;
            (state.streams).tag_given(&self.driver, stream, window.stitch, late)
        };
        let last = stream.map(tag);
        let last = match last.transpose() {
            Ok(last) => last.unwrap_or(Use::DONE),
            Err(code) => {
                let last = stream.map(|stream| state.streams.lose(stream, window.stitch));
                state.give(window, last.unwrap_or(Use::DONE));
                return (state, Err(code.into()));
            }
        };
        state.add_slab(window, last);
        let lent = state.lend_small(request, stream, TRIES);
        // A use that had to be tagged for the whole context is not ready for
        // this stream yet: a wait makes it so.
        (state, lent.ok_or(Code::NOT_READY.into()))
    }

    /// Finds or builds a window and takes its bytes.
    fn find_window<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        need: Need,
        request: &Request,
        reach: Reach,
    ) -> (StateGuard<'a>, std::result::Result<Window, Refusal>) {
        let effort = request.effort;
        let need = Need {
            late: reach == Reach::Late,
            alone: !is_small(request) && state.exports.is_like_one(need.bytes),
            ..need
        };
        let shared = Need {
            alone: false,
            ..need
        };
        // What is best alone is not, sooner than the pool grows.
        let ways = &[need, shared][..1 + usize::from(need.alone)];
        let ready = Usable::Ready(need.stream.filter(|_| reach != Reach::Over));
        let independent = self.settings.independent.load(Relaxed);
        let passes: &[Usable] = match request.order {
            _ if self.settings.policy == Policy::Direct => &[],
            Order::Stream(key) if !independent && reach.goes_behind_others(key.stream) => {
                &[ready, Usable::All]
            }
            _ => &[ready],
        };
        let each = |usable| ways.iter().map(move |need| (usable, *need));
        for (usable, need) in passes.iter().flat_map(|usable| each(*usable)) {
            let mut found = state.recall(need, usable);
            found = found.or_else(|| state.search(need, usable));
            if let Some(window) = found
                && effort == Effort::Growth
                && let Some(plan) = state.instead(window, need, usable, self.settings.chunk)
            {
                let (again, built) = self.build(state, &plan, need);
                state = again;
                if built.is_ok() {
                    return (state, built.map_err(Refusal::from));
                }
                // The window may be somebody else's meanwhile.
                found = state.search(need, usable);
            }
            if let Some(window) = found {
                if let Err(code) = self.claim(&mut state, need, window) {
                    return (state, Err(code.into()));
                }
                state.stats.hits += 1;
                return (state, Ok(window));
            }
            let plan = state.plan(need, usable, self.settings.chunk);
            if plan.growth() == 0 && effort == Effort::Growth {
                let (state, built) = self.build(state, &plan, need);
                return (state, built.map_err(Refusal::from));
            }
        }
        // In the order of its stream it could have these; as it is, the host waits.
        let of_others = matches!(request.order, Order::Segment(_)) && reach == Reach::Ordered;
        if of_others && !passes.is_empty() && self.is_spared(&mut state, need, effort) {
            return (state, Err(Code::NOT_READY.into()));
        }
        if effort == Effort::Window {
            return (state, Err(Refusal::NoWindow));
        }
        let plan = match passes.last() {
            Some(&usable) => state.plan(need, usable, self.settings.chunk),
            None => Plan {
                fresh: vec![need.bytes.next_multiple_of(HANDLE)],
                ..Plan::default()
            },
        };
        let (mut state, mut built) = self.build(state, &plan, need);
        let wants_more = need.alone || self.settings.chunk.is_some();
        if let (Err(Code::OUT_OF_MEMORY), Some(&usable)) = (built, passes.last())
            && wants_more
        {
            // What is left may be less than a handle of the size that was set, or of its own.
            let rest = state.plan(shared, usable, None);
            if rest.growth() < plan.growth() {
                (state, built) = self.build(state, &rest, shared);
            }
        }
        (state, built.map_err(Refusal::from))
    }

    /// Would bytes that other streams still use spare a request new memory?
    fn is_spared(&self, state: &mut State, need: Need, effort: Effort) -> bool {
        let mut growth = |usable| state.plan(need, usable, self.settings.chunk).growth();
        let ready = Usable::Ready(need.stream);
        effort == Effort::Growth && growth(Usable::All) < growth(ready)
            || state.search(need, Usable::All).is_some()
    }
}

#[cfg(test)]
#[path = "slow_tests.rs"]
mod tests;
