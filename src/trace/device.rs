//! One device of a replay: its pool over the driver model, the pages that were
//! mapped beside it and, where the program is PyTorch with its own allocator, that
//! allocator in between. Passes requests on and measures what they take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::mapped::Mapped;
use super::pages::{ALONE, ASKED, Kept, Plain};
use super::torch_expandable::Expandable;
use super::torch_native::{Allocator, Runtime};
use super::{Event, Use};
use crate::driver::model::Model;
use crate::driver::{Address, Code, Context, Stream};
use crate::pages::Counts;
use crate::pool::{Effort, Order, Owner, Pool, Refusal, Release, Request, Settings, StreamKey};
use crate::reclaim;
use crate::trace;

/// The pool's alignment of stream-ordered bases, and of segments, in bytes.
const ALIGN: u64 = 512;
const SEGMENT_ALIGN: u64 = 2 << 20;

/// How the program's requests reach the pool. The command's help has the first
/// paragraph of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Every tensor, as torch's backend:cudaMallocAsync asks
    ///
    /// What the program asked for (`alloc`, `free`, `free_done`) is asked for again:
    /// tensors, segments or pages, as they were recorded.
    Async,
    /// Torch's expandable segments (a model of torch 2.11) over pages that are kept, asked to give back
    ///
    /// It is asked before there would be more than ever. Pages are the requests.
    Native,
    /// Torch's segments by cudaMalloc (a model), asked to give idle ones back (MEMCUDA_TORCH=segments)
    ///
    /// Segments are the requests.
    Segments,
    /// Torch's expandable segments (a model) without memcuda
    Expandable,
    /// Torch's own segments as recorded, where the trace has them
    ///
    /// These (`segment_alloc`, `segment_free`) are the requests.
    Recorded,
}

impl Profile {
    /// Does torch map pages, of sizes of its own? The pool makes no handles for it.
    pub fn has_pages(self) -> bool {
        matches!(self, Self::Native | Self::Expandable)
    }

    /// Is it memcuda that is asked? Else there are no requests, hits and times of its own.
    pub fn asks_memcuda(self) -> bool {
        self != Self::Expandable
    }

    /// Is there a model of torch's own allocator, which asks in the place of tensors?
    pub fn models_torch(self) -> bool {
        matches!(self, Self::Native | Self::Segments | Self::Expandable)
    }
}

/// A device of the trace.
pub struct Device {
    asks: Asks,
    served: Served,
}

/// What tensors ask for memory.
enum Asks {
    Pool,
    Native(Box<Expandable<Kept>>),
    Segments(Allocator),
    Expandable(Expandable<Plain>),
}

impl Device {
    /// A device of `total_bytes`.
    ///
    /// # Errors
    /// The driver model's code.
    pub fn new(
        ordinal: u32,
        total_bytes: u64,
        profile: Profile,
        settings: Settings,
    ) -> Result<Self, Code> {
        let most_bytes = settings
            .limit
            .map_or(total_bytes, |limit| limit.min(total_bytes));
        let asks = match profile {
            Profile::Async | Profile::Recorded => Asks::Pool,
            Profile::Native => {
                let kept = Kept::new(ordinal, total_bytes, settings.limit);
                Asks::Native(Box::new(Expandable::new(kept, ASKED)))
            }
            Profile::Segments => Asks::Segments(Allocator::default()),
            Profile::Expandable => Asks::Expandable(Expandable::new(Plain::new(most_bytes), ALONE)),
        };
        let mapped = Mapped::new(ordinal, total_bytes);
        let served = Served {
            context: Context(u64::from(ordinal) + 1),
            most_bytes,
            pool: Pool::new(Model::new(total_bytes), ordinal, beside(settings, &mapped))?,
            mapped,
            peak_bytes: 0,
            reclaim: reclaim::Device::new(),
            thread: reclaim::Thread::new(),
            alloc_ns: Vec::new(),
        };
        Ok(Self { asks, served })
    }

    /// Memory for a request of the program.
    ///
    /// # Errors
    /// The pool's refusal.
    pub fn alloc(&mut self, event: &Event) -> Result<Address, Refusal> {
        let (bytes, stream) = (event.bytes, event.stream);
        match &mut self.asks {
            Asks::Pool if event.owner == Some(trace::Owner::Page) => self.served.map(event),
            Asks::Pool => self.served.alloc(event),
            Asks::Native(torch) => torch.malloc(bytes, stream),
            Asks::Segments(torch) => torch.malloc(&mut self.served, bytes, stream),
            Asks::Expandable(torch) => torch.malloc(bytes, stream),
        }
    }

    /// Torch unmaps a page. Its address tells nothing: the pool may have lent the same one,
    /// in a model of its own.
    pub fn unmap(&mut self, at: Address, bytes: u64) {
        self.served.mapped.unmap(at, bytes);
    }

    /// The memory may be used again, behind the work of its stream.
    pub fn free(&mut self, at: Address, stream: u64, uses: Option<Use>) {
        match &mut self.asks {
            Asks::Pool => self.served.give(at, stream, uses),
            Asks::Native(torch) => torch.free(at),
            Asks::Segments(torch) => torch.free(at),
            Asks::Expandable(torch) => torch.free(at),
        }
    }

    /// Bytes held from the driver.
    pub fn physical(&self) -> u64 {
        match &self.asks {
            Asks::Expandable(torch) => torch.driver.physical(),
            Asks::Native(torch) => torch.driver.pages.physical(),
            _ => self.served.physical(),
        }
    }

    /// The most bytes held from the driver at any time.
    pub fn peak_physical(&self) -> u64 {
        match &self.asks {
            Asks::Expandable(torch) => torch.driver.peak_bytes,
            Asks::Native(torch) => torch.driver.peak_bytes,
            _ => {
                let peak = self.served.pool.stats().peak_physical_bytes;
                peak.max(self.served.peak_bytes)
            }
        }
    }

    /// Requests that made no driver call but event operations; pages count as
    /// requests.
    pub fn hits(&self) -> u64 {
        match &self.asks {
            Asks::Native(torch) => torch.driver.pages.totals().counts.hits,
            _ => self.served.pool.stats().hits + self.served.pages().hits,
        }
    }

    /// Handles mapped in all.
    pub fn handles_mapped(&self) -> u64 {
        match &self.asks {
            Asks::Native(torch) => torch.driver.pages.totals().counts.mapped,
            _ => self.served.pool.stats().handles_mapped + self.served.pages().mapped,
        }
    }

    /// Nanoseconds in driver calls, by the model.
    pub fn driver_time_ns(&self) -> u64 {
        match &self.asks {
            Asks::Native(torch) => torch.driver.pages.driver().driver_time_ns(),
            _ => {
                let pages = self.served.mapped.pages().driver();
                self.served.pool.driver().driver_time_ns() + pages.driver_time_ns()
            }
        }
    }

    /// What cooperative reclaim did.
    pub fn reclaim(&self) -> &reclaim::Device {
        match &self.asks {
            Asks::Native(torch) => &torch.driver.reclaim,
            _ => &self.served.reclaim,
        }
    }

    /// The time of each request that was served, in nanoseconds.
    pub fn alloc_ns(&self) -> &[u32] {
        match &self.asks {
            Asks::Native(torch) => &torch.driver.page_ns,
            _ => &self.served.alloc_ns,
        }
    }
}

/// Requests to the pool. Torch's allocator is taken to run on one thread.
struct Served {
    context: Context,
    /// Most bytes that pool and pages may hold together.
    most_bytes: u64,
    pool: Pool<Model>,
    mapped: Mapped,
    /// The most that both held where a page was mapped.
    peak_bytes: u64,
    reclaim: reclaim::Device,
    thread: reclaim::Thread,
    alloc_ns: Vec<u32>,
}

impl Served {
    fn physical(&self) -> u64 {
        self.pool.physical() + self.mapped.pages().physical()
    }

    fn pages(&self) -> Counts {
        self.mapped.pages().totals().counts
    }

    fn map(&mut self, event: &Event) -> Result<Address, Refusal> {
        let (pool, pages) = (&self.pool, Arc::clone(self.mapped.pages()));
        let over = |bytes: u64| {
            (pool.physical() + pages.physical() + bytes).saturating_sub(self.most_bytes)
        };
        let room = |bytes| {
            pages.give_back(over(bytes), Duration::ZERO);
            if over(bytes) > 0 {
                pool.give_back(over(bytes), Duration::ZERO);
            }
            over(bytes) == 0
        };
        let start = Instant::now();
        let at = self.mapped.map(event.id, event.bytes, room);
        let at = at.map_err(Refusal::Driver)?;
        self.measured(start);
        self.peak_bytes = self.peak_bytes.max(self.physical());
        Ok(at)
    }

    fn alloc(&mut self, event: &Event) -> Result<Address, Refusal> {
        let mut request = self.request(event.bytes, ALIGN, event.stream);
        if event.uses == Some(Use::Any) {
            request.order = Order::Unknown;
        }
        let owner = event.owner.and_then(trace::Owner::of_pool);
        if let Some(owner) = owner {
            request.owner = owner;
            request.align = owner.alignment(event.bytes);
        }
        let start = Instant::now();
        let at = self.pool.alloc(&request)?;
        self.measured(start);
        if self.mapped.pages().physical() > 0 {
            self.peak_bytes = self.peak_bytes.max(self.physical());
        }
        Ok(at)
    }

    fn give(&mut self, at: Address, stream: u64, uses: Option<Use>) {
        let release = match uses {
            None | Some(Use::Stream) => Release::Stream(self.key(stream)),
            Some(Use::Complete) => Release::Complete,
            Some(Use::Any) => Release::Unknown,
        };
        let freed = self.pool.free(at, release);
        freed.expect("the pool knows every block that it lent");
    }

    fn request(&self, bytes: u64, align: u64, stream: u64) -> Request {
        Request {
            bytes,
            align,
            order: Order::Stream(self.key(stream)),
            context: self.context,
            owner: Owner::MemoryPool,
            effort: Effort::Growth,
            graph: false,
        }
    }

    /// The trace numbers streams from 0, which is the default stream; the
    /// driver gives 1 and 2 a meaning of their own.
    fn key(&self, stream: u64) -> StreamKey {
        let stream = match stream {
            0 => Stream::LEGACY,
            other => Stream(other.saturating_add(0x1000)),
        };
        StreamKey::new(self.context, stream, 0)
    }

    fn measured(&mut self, start: Instant) {
        let ns = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
        self.alloc_ns.push(ns);
    }
}

/// Settings of a pool beside which there are pages: their bytes count against the
/// limit, and the idle ones of them go where the pool needs memory.
fn beside(settings: Settings, mapped: &Mapped) -> Settings {
    let [held, idle] = [(); 2].map(|()| Arc::clone(mapped.pages()));
    Settings {
        beside: Some(Box::new(move || (held.physical(), held.idle()))),
        starving: Some(Box::new(move |bytes, _, _| {
            idle.give_back(bytes, Duration::ZERO) > 0
        })),
        ..settings
    }
}

impl Runtime for Served {
    fn malloc(&mut self, bytes: u64, stream: u64) -> Result<Address, Refusal> {
        let request = self.request(bytes, SEGMENT_ALIGN, stream);
        let start = Instant::now();
        let thread = &self.thread;
        let (result, _) = thread.alloc(&self.reclaim, &self.pool, &request, true);
        if result.is_ok() {
            self.measured(start);
        }
        result
    }

    fn free(&mut self, at: Address, bytes: u64, stream: u64) {
        self.give(at, stream, None);
        self.thread.freed(bytes);
    }
}
