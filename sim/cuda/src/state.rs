//! The whole simulation, behind one lock. Holds; decides nothing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::abi::{Answer, Code};
use crate::arena::Arena;
use crate::array::Array;
use crate::blocks::Pool;
use crate::capture::Capture;
use crate::check::Shadow;
use crate::claims::Claims;
use crate::clock::Clock;
use crate::context::Context;
use crate::event::Event;
use crate::fault::Faults;
use crate::graph::Graph;
use crate::handle::Physical;
use crate::held::Held;
use crate::host::Pinned;
use crate::ipc::Opened;
use crate::lacks::Lacks;
use crate::mapping::{Mapping, most_views};
use crate::memory::Allocation;
use crate::module::Loaded;
use crate::settings::Settings;
use crate::shared::Ledger;
use crate::stream::{Pending, Stream};
use crate::stream_handles::StreamHandles;
use crate::values::Signal;
use crate::wait::Waits;

pub static SIM: Mutex<Option<Sim>> = Mutex::new(None);

pub struct Sim {
    /// The driver call that runs.
    pub call: &'static str,
    pub clock: Clock,
    pub faults: Faults,
    pub lacks: Lacks,
    pub ledger: Ledger,
    pub devices: Vec<Device>,
    pub contexts: BTreeMap<u64, Context>,
    /// Green contexts: the contexts that stand for them.
    pub greens: HashMap<u64, u64>,
    pub streams: HashMap<u32, Stream>,
    pub stream_handles: StreamHandles,
    /// Handles of contexts that have ended: the next ones get them, on whatever device.
    pub spare_contexts: Vec<u64>,
    /// How often each context stands on the threads' stacks.
    pub stacked: HashMap<u64, u32>,
    /// The devices of contexts that have ended, by their handles.
    pub ended: HashMap<u64, usize>,
    pub events: HashMap<u64, Event>,
    /// Events whose context has ended.
    pub ended_events: HashSet<u64>,
    pub captures: HashMap<u64, Capture>,
    pub graphs: HashMap<u64, Graph>,
    /// Memory that a launch of a graph left to the program.
    pub graph_memory: HashSet<u64>,
    pub pools: BTreeMap<u64, Pool>,

    /// Address space from `cuMemAddressReserve`: base to bytes.
    pub reservations: BTreeMap<u64, u64>,
    pub mappings: BTreeMap<u64, Mapping>,
    /// Mappings that the host sees, and how many it may.
    pub views: usize,
    pub most_views: usize,
    pub handles: HashMap<u64, Physical>,
    /// Handles may be for a fabric.
    pub fabric: bool,
    /// Everything but virtual memory management: base to allocation.
    pub allocations: BTreeMap<u64, Allocation>,
    /// Memory of other processes, opened by its legacy handle, by base.
    pub opened: BTreeMap<u64, Opened>,
    pub arrays: BTreeMap<u64, Array>,
    pub loaded: HashMap<u64, Loaded>,
    /// Page-locked host memory.
    pub pinned: BTreeMap<u64, Pinned>,
    /// Arenas of other processes, by their identity: the object number.
    pub foreign: HashMap<u64, u32>,
    /// A descriptor of each arena from which something was imported.
    pub files: HashMap<u64, Arc<OwnedFd>>,

    /// Work that changes something when its time comes: by end and order.
    pub pending: BTreeMap<(u64, u64), Pending>,
    /// What goes on at a time that is not known yet.
    pub held: Vec<Held>,
    pub waits: Waits,
    /// There is a thread for functions of the host.
    pub host_thread: bool,
    /// The last words that were queued to be written.
    pub signals: VecDeque<Signal>,
    pub shadow: Shadow,
    pub claims: Claims,
    next: u64,
}

pub struct Device {
    pub arena: Arena,
    /// The primary context's number, kept over resets.
    pub primary: u64,
    /// Retains of it: a reset takes none away.
    pub retains: u32,
    pub default_pool: u64,
    pub current_pool: u64,
}

impl Sim {
    /// Builds the devices; the error is the line to print.
    pub fn new() -> Result<Sim, String> {
        let settings = Settings::read()?;
        let mut sim = Sim {
            call: "cuInit",
            clock: Clock::new(settings.clock),
            faults: settings.faults,
            lacks: settings.lacks,
            ledger: Ledger::new(settings.memory, settings.shared.as_deref())?,
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            greens: HashMap::new(),
            streams: HashMap::new(),
            stream_handles: StreamHandles::default(),
            spare_contexts: Vec::new(),
            stacked: HashMap::new(),
            ended: HashMap::new(),
            events: HashMap::new(),
            ended_events: HashSet::new(),
            captures: HashMap::new(),
            graphs: HashMap::new(),
            graph_memory: HashSet::new(),
            pools: BTreeMap::new(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            views: 0,
            most_views: most_views(),
            handles: HashMap::new(),
            fabric: settings.fabric,
            allocations: BTreeMap::new(),
            opened: BTreeMap::new(),
            arrays: BTreeMap::new(),
            loaded: HashMap::new(),
            pinned: BTreeMap::new(),
            foreign: HashMap::new(),
            files: HashMap::new(),
            pending: BTreeMap::new(),
            held: Vec::new(),
            waits: Waits::default(),
            host_thread: false,
            signals: VecDeque::new(),
            shadow: Shadow::default(),
            claims: Claims::default(),
            next: 0,
        };
        for ordinal in 0..settings.devices {
            let arena = Arena::new(ordinal, settings.memory)
                .map_err(|_| "memcuda-sim: no address space for the simulated device".to_owned())?;
            let default_pool = sim.number(0x6d00_0000_0000);
            sim.pools.insert(default_pool, Pool::new(ordinal, true));
            let primary = sim.number(0x6300_0000_0000);
            sim.devices.push(Device {
                arena,
                primary,
                retains: 0,
                default_pool,
                current_pool: default_pool,
            });
        }
        Ok(sim)
    }

    /// A number never used before, above a base that tells its kind.
    pub fn number(&mut self, base: u64) -> u64 {
        self.next += 1;
        base + (self.next << 4)
    }

    /// The last one of them.
    pub fn last_number(&self, base: u64) -> u64 {
        base + (self.next << 4)
    }

    pub fn device(&self, ordinal: i32) -> Result<usize, Code> {
        usize::try_from(ordinal)
            .ok()
            .filter(|i| *i < self.devices.len())
            .ok_or(Code::INVALID_DEVICE)
    }

    /// The context current on this thread, alive and without sticky error.
    pub fn current(&self) -> Result<u64, Code> {
        let context = current_context().ok_or(Code::INVALID_CONTEXT)?;
        self.healthy(context)?;
        Ok(context)
    }

    /// The device of the current context.
    pub fn current_device(&self) -> Result<usize, Code> {
        let context = self.current()?;
        Ok(self.contexts[&context].device)
    }

    pub fn healthy(&self, context: u64) -> Answer {
        match self.contexts.get(&self.whole(context)) {
            None => Err(Code::CONTEXT_IS_DESTROYED),
            Some(context) => context.error.map_or(Ok(()), Err),
        }
    }
}

thread_local! {
    /// Without a destructor: a program may call from its threads' last moments.
    static CONTEXTS: RefCell<ManuallyDrop<Vec<u64>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Works on the context stack of the calling thread.
pub fn with_contexts<T>(body: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CONTEXTS.with(|stack| body(&mut stack.borrow_mut()))
}

pub fn current_context() -> Option<u64> {
    let current = CONTEXTS.with(|stack| stack.borrow().last().copied());
    current.filter(|context| *context != 0)
}

/// The calling thread's capture mode; `swap` sets another one.
pub fn capture_mode(swap: Option<u32>) -> u32 {
    let mode = CAPTURE_MODE.get();
    CAPTURE_MODE.set(swap.unwrap_or(mode));
    mode
}

/// A number of the calling thread, unique in the process.
pub fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if THREAD.get() == 0 {
        THREAD.set(NEXT.fetch_add(1, Relaxed));
    }
    THREAD.get()
}
