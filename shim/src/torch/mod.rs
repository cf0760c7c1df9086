//! PyTorch profiles (`MEMCUDA_TORCH`): what torch is told of its allocator
//! setting, how its own allocator is recognised below cudart, and cooperative
//! reclaim, in which torch gives idle segments back instead of the pool growing.
//!
//! An out-of-memory at the wrong moment ends the user's program. So a request
//! fails softly only where everything is proven: torch's own allocator, at
//! least its split size, no capture, no private-pool scope, rungs of its ladder
//! left. In doubt the pool grows.

mod base;
mod between;
mod conf;
mod elf;
mod environment;
mod fabric;
mod filters;
mod first;
#[cfg(test)]
mod fixture;
mod identity;
mod layout;
mod library;
mod limits;
mod logger;
mod nccl;
mod notice;
mod places;
mod raise;
mod reclaim;
mod registered;
mod scopes;
mod sharing;
mod sides;
mod split;
mod switch;
mod tensors;
mod unmaps;
mod withheld;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memcuda_core::driver::{Address, Code, Driver, Stream};
use memcuda_core::pool::{Order, Pool, Refusal, Request, StreamKey};

pub use base::set as answers_by;
pub use environment::merged as merged_env;
pub use fabric::refuses_page_with;
pub use first::page_made;
pub use identity::{TorchCall, identify, identify_free};
pub use reclaim::{freed, is_on_ladder, refused, served};
pub use registered::note as is_registered;
pub use scopes::{forgets_users, may_be_open as maps_for_graphs};
pub use tensors::set as tells_of_tensors;
pub use unmaps::{is_unmapping, may_unmap_behind, unmaps_behind, waits_to_unmap};
pub use withheld::bytes as withheld;

use crate::libraries::modules::Module;
use crate::process::tags::Tag;
use layout::Layout;
use library::Library;

static LAYOUT: OnceLock<Result<Layout, &'static str>> = OnceLock::new();

/// The checked layout of torch's allocator library, once it was looked at.
fn layout() -> Option<&'static Layout> {
    LAYOUT.get()?.as_ref().ok()
}

/// A tagged runtime function was called from here, or CUDA has started. The
/// first call from torch comes before it sets its allocator up: the moment to
/// begin counting its scopes.
pub fn note_runtime_call(caller: usize) {
    static LAST_OTHER: AtomicUsize = AtomicUsize::new(0);
    static SETTLED: AtomicBool = AtomicBool::new(false);
    notice::flush();
    if SETTLED.load(Ordering::Relaxed) || LAST_OTHER.load(Ordering::Relaxed) == caller {
        return;
    }
    if !identity::is_allocator(caller) {
        LAST_OTHER.store(caller, Ordering::Relaxed);
        return;
    }
    if !crate::libraries::aside::stands() {
        let layout = library::named("libc10_cuda.so").map(|l| watched_layout(&l));
        let watched = layout.is_some_and(|layout| layout.is_ok_and(scopes::install));
        if !watched {
            crate::log!(Debug, "torch's allocator is not watched");
            split::leave();
        }
    }
    SETTLED.store(true, Ordering::Relaxed);
}

/// The checked layout of torch's allocator library, looked at once.
fn watched_layout(library: &Library) -> Result<&'static Layout, &'static str> {
    let layout = LAYOUT.get_or_init(|| layout::verify(library));
    layout.as_ref().map_err(|reason| *reason)
}

/// Is this allocation a segment of torch's native allocator, which lends it on?
pub fn is_segment(tag: &Tag) -> bool {
    let from = tag.cuda_malloc.map(|(from, _)| from);
    from.is_some_and(identity::is_allocator) && !environment::caching_is_off()
}

/// A `cuMemAlloc` for this device, torch's own or not.
pub fn asks_for(tag: &Tag, device: u32) {
    split::leave_late();
    if environment::cooperates() && is_segment(tag) {
        raise::used_on(device);
    }
}

/// Is this code torch's allocator, and its expandable segments below the profile
/// that keeps their pages?
pub fn maps_pages(caller: usize) -> bool {
    environment::maps_pages() && identity::is_allocator(caller) && !fabric::finds_out(caller)
}

/// Is torch's allocator loaded?
pub fn is_there() -> bool {
    library::named("libc10_cuda.so").is_some()
}

/// There can be no pages on this device: torch has none from now on, unless its user turned
/// expandable segments on. Before torch allocates.
pub fn has_no_pages(device: u32) {
    environment::no_pages();
    if switch::off_for_good() {
        crate::log!(
            Info,
            "torch has segments by cudaMalloc after all: device {device} has no virtual memory \
             management, none whose memory can be shared, or too few addresses for it"
        );
    }
}

/// There is a device without a pool. What torch gives back and asks for again are the driver's
/// calls there, which wait for work: it is not asked from now on, and has no split size of ours.
pub fn has_no_pool() {
    environment::no_pool();
    split::leave();
}

/// May torch be asked for idle pages, by failing its request for one more of this
/// many bytes? If so the answer to it is out-of-memory. No capture is under way.
pub fn ask_for_pages(device: u32, bytes: u64) -> bool {
    let proven = environment::maps_pages() && !scopes::may_be_open(device) && !scopes::given_up();
    proven && !registered::is_any() && reclaim::ask_at_peak(device, bytes)
}

/// Where torch's allocator library waits for this stream from, if it has pages.
pub fn waits_from(tag: &Tag, stream: Stream) -> Option<usize> {
    let (caller, _) = tag.synchronize.filter(|(_, waited)| *waited == stream)?;
    maps_pages(caller).then_some(caller)
}

/// Torch has mapped a page of this many bytes: what it asked for, it has got.
pub fn page_mapped(device: u32, bytes: u64) {
    tensors::mapped();
    served(device);
    withheld::took(device, bytes);
}

/// Serves a request of torch, which is in the order of its stream: first by
/// asking torch for what it holds idle (out-of-memory, answered once), then from
/// the pool.
pub fn alloc<D: Driver + Clone>(
    pool: &Pool<D>,
    request: &Request,
    call: &TorchCall,
) -> Result<Address, Refusal> {
    reclaim::alloc(call.device, pool, request, may_fail_softly(call))
}

impl TorchCall {
    /// A request, in the order of the stream that torch asks for.
    pub fn ordered(&self, key: StreamKey, request: Request) -> Request {
        Request {
            order: Order::Segment(key),
            graph: request.graph || self.scope_open,
            ..request
        }
    }
}

/// A `cuMemAlloc` that the plain driver serves because the pool has stopped or
/// never started. With the settings that torch was told it would fill the card
/// unless it is asked to give back, so it still is. Which device it is for is not
/// asked; the memory goes back by [`plain_free`].
pub fn plain_alloc(tag: &Tag, thunk: Module, bytes: u64, real: impl FnOnce() -> Code) -> Code {
    split::leave_late();
    if !environment::cooperates() {
        return real();
    }
    if is_segment(tag) {
        raise::end();
        split::leave();
    }
    let Some(mut call) = identify(tag, thunk, 0, bytes) else {
        return real();
    };
    call.scope_open = scopes::any_may_be_open();
    if may_fail_softly(&call) && reclaim::ask_back(call.device, bytes) {
        return Code::OUT_OF_MEMORY;
    }
    let code = real();
    match code {
        Code::SUCCESS => reclaim::served(call.device),
        _ => reclaim::had_none(),
    }
    code
}

/// A `cuMemFree` of memory that is not the pool's.
pub fn plain_free(tag: &Tag, thunk: Module, address: Address, real: impl FnOnce() -> Code) -> Code {
    let code = real();
    if code == Code::SUCCESS && identify_free(tag, thunk, address) {
        reclaim::freed_unknown();
    }
    code
}

fn may_fail_softly(call: &TorchCall) -> bool {
    let proven = environment::cooperates() && !call.scope_open && !scopes::given_up();
    proven && !registered::is_any()
}
