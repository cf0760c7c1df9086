//! A driver without memory: it keeps the books of the virtual-memory calls,
//! charges each call its cost on an H200 (docs/measurements), and refuses what
//! the driver refuses. For replays and for tests of the pool; work on streams
//! is modelled as complete unless a test holds a stream back (`steering`).

mod steering;

use super::{Access, Address, Capture, Code, Context, Driver, Event, Handle, Result, Stream, cost};
use crate::units::{GIB, MIB};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use crate::lock::lock;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};

/// Stands for all streams of a context.
pub const WHOLE_CONTEXT: Stream = Stream(u64::MAX);

/// Bytes of addresses that one reservation has at most.
const MOST_AT_ONCE: u64 = 64 * 1024 * GIB;

#[derive(Default)]
struct Books {
    reservations: BTreeMap<Address, u64>,
    handles: HashMap<Handle, u64>,
    mappings: BTreeMap<Address, (u64, Handle)>,
    /// Of what is mapped, where it was first, and at how many addresses it is.
    shown: HashMap<Handle, (Address, usize)>,
    access: HashMap<(Address, u32), Access>,
    imported: HashSet<Handle>,
    held: u64,
    peak: u64,
    says_free: Option<u64>,
    next: u64,
    clock_ns: u64,
    calls: u64,
    fail_at: Option<(u64, Code)>,
    fail_waits: Option<(u32, Code)>,
    no_orders: Option<Code>,
    most_mappings: Option<usize>,
    most_addresses: Option<u64>,
    granularity: Option<u64>,
    made: HashMap<Event, Context>,
    events: HashMap<Event, (Context, Stream)>,
    gone: HashSet<Event>,
    ended: HashSet<Context>,
    blocked: HashSet<(Context, Stream)>,
    is_endless: bool,
    /// As a driver before 12.5: no event stands for a whole context.
    lacks_context_events: bool,
    waits: Vec<(Stream, Stream)>,
}

/// The model of one device.
pub struct Model {
    total: u64,
    books: Mutex<Books>,
}

impl Model {
    /// A device with this much memory, in bytes.
    pub fn new(total: u64) -> Self {
        Self {
            total,
            books: Mutex::default(),
        }
    }

    /// Modelled nanoseconds spent in driver calls other than event operations.
    pub fn driver_time_ns(&self) -> u64 {
        self.books().clock_ns
    }

    /// Physical bytes held.
    pub fn held(&self) -> u64 {
        self.books().held
    }

    /// Virtual-memory calls made so far.
    pub fn calls(&self) -> u64 {
        self.books().calls
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }

    fn charge(&self, ns: u64) -> Result<MutexGuard<'_, Books>> {
        let mut books = self.books();
        let call = books.calls;
        books.calls += 1;
        books.clock_ns += ns;
        match books.fail_at {
            Some((at, code)) if at == call => Err(code),
            _ => Ok(books),
        }
    }
}

impl Books {
    /// Fails where the test wants it; see [`Model::fail_waits`].
    fn may_wait(&mut self) -> Result<()> {
        match &mut self.fail_waits {
            Some((left @ 1.., code)) => {
                *left -= 1;
                Err(*code)
            }
            _ => Ok(()),
        }
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The whole mappings that tile a range.
    fn tiles(&self, at: Address, bytes: u64) -> Result<Vec<Address>> {
        let (mut tiles, mut reached) = (Vec::new(), at);
        for (&start, &(size, ..)) in self.mappings.range(at..at + bytes) {
            if start != reached {
                break;
            }
            reached += size;
            tiles.push(start);
        }
        if reached == at + bytes && bytes > 0 {
            Ok(tiles)
        } else {
            Err(Code::INVALID_VALUE)
        }
    }
}

impl Driver for Model {
    fn granularity(&self, _device: u32) -> Result<u64> {
        Ok(self.books().granularity.unwrap_or(2 * MIB))
    }

    fn memory_info(&self, _device: u32) -> Result<(u64, u64)> {
        let books = self.books();
        let free = books.says_free.unwrap_or(self.total - books.held);
        Ok((free, self.total))
    }

    fn reserve(&self, bytes: u64) -> Result<Address> {
        let mut books = self.charge(cost::RESERVE)?;
        let all = books.reservations.values().sum::<u64>() + bytes;
        let are_too_many = books.most_addresses.is_some_and(|most| all > most);
        if are_too_many || bytes > MOST_AT_ONCE {
            return Err(Code::OUT_OF_MEMORY);
        }
        let end = books.reservations.iter().next_back();
        let at = end.map_or(0x7000_0000_0000, |(base, size)| base + size + 2 * MIB);
        books.reservations.insert(at, bytes);
        Ok(at)
    }

    fn free_reservation(&self, at: Address, bytes: u64) -> Result<()> {
        let mut books = self.charge(cost::FREE_RESERVATION)?;
        if books.mappings.range(at..at + bytes).next().is_some()
            || books.reservations.get(&at) != Some(&bytes)
        {
            return Err(Code::INVALID_VALUE);
        }
        books.reservations.remove(&at);
        Ok(())
    }

    fn create(&self, _device: u32, bytes: u64) -> Result<Handle> {
        let mut books = self.charge(cost::create(bytes))?;
        if bytes == 0 || !bytes.is_multiple_of(2 * MIB) {
            return Err(Code::INVALID_VALUE);
        }
        if books.held + bytes > self.total {
            return Err(Code::OUT_OF_MEMORY);
        }
        let handle = Handle(books.id());
        books.held += bytes;
        books.peak = books.peak.max(books.held);
        books.handles.insert(handle, bytes);
        Ok(handle)
    }

    fn release(&self, handle: Handle) -> Result<()> {
        let bytes = self.books().handles.get(&handle).copied();
        let bytes = bytes.ok_or(Code::INVALID_VALUE)?;
        let mut books = self.charge(cost::release(bytes))?;
        assert!(
            books.mappings.values().all(|(_, mapped)| *mapped != handle),
            "a handle is released while it is mapped"
        );
        books.handles.remove(&handle);
        if !books.imported.remove(&handle) {
            books.held -= bytes;
        }
        Ok(())
    }

    fn export(&self, handle: Handle) -> Result<OwnedFd> {
        let books = self.charge(cost::EXPORT)?;
        let bytes = books.handles.get(&handle).ok_or(Code::INVALID_VALUE)?;
        if books.imported.contains(&handle) {
            return Err(Code::INVALID_VALUE);
        }
        // Whoever imports it learns its size from that of the file.
        let file = memfd_create(c"memory", MemfdFlags::CLOEXEC).map_err(|_| Code::UNKNOWN)?;
        ftruncate(&file, *bytes).map_err(|_| Code::UNKNOWN)?;
        Ok(file)
    }

    fn import(&self, descriptor: BorrowedFd<'_>) -> Result<Handle> {
        let mut books = self.charge(cost::IMPORT)?;
        let bytes = fstat(descriptor).map_err(|_| Code::INVALID_VALUE)?.st_size as u64;
        let handle = Handle(books.id());
        books.handles.insert(handle, bytes);
        books.imported.insert(handle);
        Ok(handle)
    }

    fn map(&self, at: Address, bytes: u64, handle: Handle) -> Result<()> {
        let mut books = self.charge(cost::map(bytes))?;
        match books.handles.get(&handle) {
            None => return Err(Code::INVALID_VALUE),
            Some(size) if *size != bytes => return Err(Code::NOT_SUPPORTED),
            Some(_) => {}
        }
        let inside = books.reservations.range(..=at).next_back();
        let inside = inside.is_some_and(|(base, size)| at + bytes <= base + size);
        let before = books.mappings.range(..at + bytes).next_back();
        let taken = before.is_some_and(|(base, (size, ..))| base + size > at);
        if !inside || taken || !at.is_multiple_of(2 * MIB) {
            return Err(Code::INVALID_VALUE);
        }
        books.mappings.insert(at, (bytes, handle));
        books.shown.entry(handle).or_insert((at, 0)).1 += 1;
        Ok(())
    }

    fn set_access(&self, at: Address, bytes: u64, device: u32, access: Access) -> Result<()> {
        let ns = {
            let books = self.books();
            let tiles = books.tiles(at, bytes)?;
            let costs = tiles
                .iter()
                .map(|tile| cost::set_access(books.mappings[tile].0));
            costs.sum()
        };
        let mut books = self.charge(if access == Access::None { 0 } else { ns })?;
        let most = books.most_mappings;
        if access != Access::None && most.is_some_and(|most| books.mappings.len() > most) {
            return Err(Code::OUT_OF_MEMORY);
        }
        for tile in books.tiles(at, bytes)? {
            books.access.insert((tile, device), access);
        }
        Ok(())
    }

    fn unmap(&self, at: Address, bytes: u64) -> Result<()> {
        let ns = {
            let books = self.books();
            let tiles = books.tiles(at, bytes)?;
            tiles
                .iter()
                .map(|tile| cost::unmap(books.mappings[tile].0))
                .sum()
        };
        let mut books = self.charge(ns)?;
        for tile in books.tiles(at, bytes)? {
            let (_, handle) = books.mappings.remove(&tile).expect("a tile");
            if let Entry::Occupied(mut shown) = books.shown.entry(handle) {
                shown.get_mut().1 -= 1;
                if shown.get().1 == 0 {
                    shown.remove();
                }
            }
            books.access.retain(|(at, _), _| *at != tile);
        }
        Ok(())
    }

    fn create_event(&self, context: Context) -> Result<Event> {
        let mut books = self.books();
        let event = Event(books.id());
        books.made.insert(event, context);
        Ok(event)
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        let mut books = self.books();
        books.made.remove(&event);
        books.events.remove(&event);
        Ok(())
    }

    fn record(&self, event: Event, context: Context, stream: Stream) -> Result<()> {
        let mut books = self.books();
        books.may_wait()?;
        if books.gone.contains(&event) {
            return Err(Code::INVALID_HANDLE);
        }
        books.events.insert(event, (context, stream));
        Ok(())
    }

    fn record_context(&self, event: Event, context: Context) -> Result<()> {
        if self.books().lacks_context_events {
            return Err(Code::NOT_FOUND);
        }
        self.record(event, context, WHOLE_CONTEXT)
    }

    fn is_complete(&self, event: Event) -> Result<bool> {
        let books = self.books();
        if books.gone.contains(&event) {
            return Err(Code::INVALID_HANDLE);
        }
        let Some((context, stream)) = books.events.get(&event) else {
            return Ok(true);
        };
        let whole = *stream == WHOLE_CONTEXT;
        let waits_for =
            |held: &(Context, Stream)| held.0 == *context && (whole || held.1 == *stream);
        Ok(!books.blocked.iter().any(waits_for))
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let is_gone = self.books().gone.contains(&event);
        assert!(!is_gone, "its handle may be another event's by now");
        while !self.is_complete(event)? && self.books().is_endless {
            std::thread::yield_now();
        }
        let mut books = self.books();
        books.may_wait()?;
        if let Some((context, stream)) = books.events.get(&event).copied() {
            let whole = stream == WHOLE_CONTEXT;
            books
                .blocked
                .retain(|held| held.0 != context || !(whole || held.1 == stream));
        }
        Ok(())
    }

    fn wait(&self, _context: Context, stream: Stream, event: Event) -> Result<()> {
        let mut books = self.books();
        books.no_orders.map_or(Ok(()), Err)?;
        let recorded = books.events.get(&event).map_or(Stream(0), |(_, s)| *s);
        books.waits.push((stream, recorded));
        Ok(())
    }

    fn wait_context(&self, context: Context, event: Event) -> Result<()> {
        self.books().may_wait()?;
        self.wait(context, WHOLE_CONTEXT, event)
    }

    fn capture(&self, _context: Context, _stream: Stream) -> Result<Capture> {
        Ok(Capture::None)
    }

    fn check(&self, _context: Context) -> Result<()> {
        Ok(())
    }

    fn synchronize_context(&self, context: Context) -> Result<()> {
        let runs = |books: &Books| {
            let mut blocked = books.blocked.iter();
            books.is_endless && blocked.any(|held| held.0 == context)
        };
        while runs(&self.books()) {
            std::thread::yield_now();
        }
        let mut books = self.books();
        books.may_wait()?;
        if books.ended.contains(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        books.blocked.retain(|held| held.0 != context);
        Ok(())
    }

    fn synchronize_by_free(&self, context: Context) -> Result<()> {
        self.synchronize_context(context)
    }

    fn fill(&self, _: Context, _: Stream, _: Address, _: u32, _: u64) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: Context, _: Address, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        Ok(())
    }
}
