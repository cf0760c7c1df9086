//! How a request is served quickly: at its front from the shelf of its stream, else from
//! slabs and remembered windows. What that does not serve is [`slow`](super::slow)'s.

use super::Pool;
use super::block::{Need, Window};
use super::front::{COMMON, Fronts};
use super::request::{BlockInfo, NotOurs, Order, Owner, Release, Request};
use super::search::Usable;
use super::slab::{GRANULE, SMALL_MAX, TRIES};
use super::state::State;
use super::streams::{StreamId, Use};
use crate::config::Policy;
use crate::driver::{Address, Code, Driver, Result, Stream};
use crate::units::HANDLE;

/// Why a front did not serve a request.
pub(super) enum Miss {
    /// Nothing of this length lies on the shelf of its stream.
    Empty(Need),
    /// The stream, its context or the peaks are another's to ask about.
    Unknown,
}

impl<D: Driver> Pool<D> {
    /// What the shelf of its stream can serve, under the front's lock alone: no
    /// driver call but the question whether the context is broken.
    pub(super) fn alloc_at_front(&self, request: &Request) -> std::result::Result<Address, Miss> {
        let broken = self.driver.check(request.context).is_err();
        let mut front = self.fronts.lock(Fronts::of(&request.order));
        front.count_request();
        let number = front.lane_of(&request.order).ok_or(Miss::Unknown)?;
        let lane = front.lane(number);
        let (stream, known) = (lane.id, self.fronts.is_now(lane.known));
        let known = known && lane.key.context == request.context && !lane.closed;
        if broken || !known || self.settings.policy == Policy::Direct {
            return Err(Miss::Unknown);
        }
        let need = need(request, (stream != Use::NOBODY).then_some(stream));
        if !front.has_room(request, need.bytes) {
            return Err(Miss::Unknown);
        }
        let lent = front.lend(number, request, need.bytes);
        lent.ok_or(Miss::Empty(need))
    }

    /// Takes a block back at the front of the stream on which it is freed, and records an
    /// event behind that where one is due; `None` where more is needed: another thread's
    /// default stream, another front, or an answer why not.
    pub(super) fn free_at_front(&self, at: Address, release: Release) -> Option<BlockInfo> {
        let (number, order) = match release {
            // Its uses are recorded at once.
            Release::Stream(key) if key.stream == Stream::PER_THREAD => return None,
            Release::Stream(key) => (Fronts::of_stream(&key), Order::Stream(key)),
            Release::Complete => (COMMON, Order::Unknown),
            Release::Own | Release::Unknown => return None,
        };
        // There nobody is given the block, nor records an event, before the free's own.
        let barrier = matches!(release, Release::Stream(key) if key.stream == Stream::LEGACY);
        let state = barrier.then(|| self.lock());
        let mut front = self.fronts.lock(number);
        let index = front.lane_of(&order)?;
        let complete = release == Release::Complete;
        if !complete && !self.fronts.is_now(front.lane(index).known) {
            // Its context may be broken, which a free answers.
            return None;
        }
        let info = front.take_back(at, index, complete)?;
        let lane = front.lane(index);
        lane.closed = barrier;
        let due = (!complete && lane.is_due()).then_some(Use {
            stream: lane.id,
            alias: Use::MIXED,
            seq: lane.tagged,
        });
        let full = lane.is_full();
        drop(front);
        if due.is_some() || full {
            let mut state = state.unwrap_or_else(|| self.lock());
            if let Some(last) = due {
                state.streams.mark_free(&self.driver, last);
            }
            if barrier {
                self.fronts.lock(number).lane(index).closed = false;
            }
            if full {
                state.unload(number);
            }
        }
        Some(info)
    }

    /// What no front could take back alone.
    #[cold]
    pub(super) fn free_behind(
        &self,
        at: Address,
        release: Release,
    ) -> std::result::Result<BlockInfo, NotOurs> {
        let mut state = self.lock();
        let mut info = state.free(&self.driver, at, release)?;
        if let Release::Stream(key) = release {
            info.error = state.streams.health.error(key.context);
        }
        if info.parked {
            self.publish(&mut state);
        }
        Ok(info)
    }

    /// What the shelves, the slabs and the remembered windows can serve: no
    /// driver call but the question whether the context is broken and, for
    /// another address on the same stream, an event record and wait.
    pub(super) fn alloc_quickly(
        &self,
        state: &mut State,
        request: &Request,
        miss: Miss,
    ) -> Result<Option<Address>> {
        let (need, shelved) = match miss {
            Miss::Empty(need) => (need, None),
            Miss::Unknown => {
                state.streams.health.check(&self.driver, request.context)?;
                if self.settings.policy == Policy::Direct {
                    return Ok(None);
                }
                let need = need(request, state.stream(request.order));
                (need, state.lend_shelved(request, need))
            }
        };
        if let Some(at) = shelved.or_else(|| state.lend_complete(request, need)) {
            return Ok(Some(at));
        }
        let served = if is_small(request) {
            Ok(state.lend_small(request, need.stream, TRIES))
        } else {
            self.lend_again(state, request, need)
        };
        match served {
            // Ordering was impossible just now; the slow path knows more ways.
            Err(Code::NOT_READY) => Ok(None),
            served => served,
        }
    }

    /// A window of this very length that was free before. Of the shelves
    /// only those that this stream may take from are settled for it.
    fn lend_again(
        &self,
        state: &mut State,
        request: &Request,
        need: Need,
    ) -> Result<Option<Address>> {
        state.settle_windows_of(Fronts::of(&request.order));
        state.settle_windows_of(COMMON);
        let need = Need {
            alone: state.exports.is_like_one(need.bytes),
            ..need
        };
        let Some(window) = state.recall(need, Usable::Ready(need.stream)) else {
            return Ok(None);
        };
        self.claim(state, need, window)?;
        Ok(Some(state.lend(request, window)))
    }

    /// Takes a window that is free, and orders a stream behind its uses.
    pub(super) fn claim(&self, state: &mut State, need: Need, window: Window) -> Result<()> {
        let uses = state.uses(window);
        state.order(&self.driver, need, &uses, window.stitch)?;
        state.take(window);
        Ok(())
    }
}

pub(super) fn is_small(request: &Request) -> bool {
    request.bytes <= SMALL_MAX && request.align <= GRANULE
}

pub(super) fn need(request: &Request, stream: Option<StreamId>) -> Need {
    let bytes = request.bytes.next_multiple_of(GRANULE);
    Need {
        bytes,
        align: request.align,
        stream,
        late: false,
        alone: false,
        one_page: request.owner == Owner::Context && bytes <= HANDLE && !is_small(request),
    }
}
