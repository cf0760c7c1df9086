//! How a stream-ordered pool finds memory: a block that the same stream (or
//! one that is ordered behind it) gave back, else a part of the pool's pieces
//! that is free by the device's clock, else a new piece.

use std::collections::{BTreeMap, HashMap};

use crate::abi::{ACCESS_READ_WRITE, Answer, Code};
use crate::arena::GRANULE;
use crate::order::Order;
use crate::ranges::Ranges;
use crate::settings::MAX_DEVICES;
use crate::state::Sim;

/// What the driver's pools take from the device at once, in bytes.
pub const PIECE: u64 = 32 << 20;

pub struct Pool {
    pub device: usize,
    pub default: bool,
    pub destroyed: bool,
    /// What its memory can be exported as.
    pub handle_types: u32,
    /// Bytes that it may reserve at most, whole pieces.
    pub limit: u64,
    /// Reserved bytes that a synchronisation leaves alone.
    pub threshold: u64,
    /// The three attributes on re-use, which the simulation only stores.
    pub reuse: [i32; 3],
    pub reserved: u64,
    pub reserved_high: u64,
    pub used: u64,
    /// What was freed out of order, and counts as used for ever.
    pub uncounted: u64,
    pub used_high: u64,
    /// `CUmemAccess_flags` of each device.
    pub access: [u8; MAX_DEVICES],
    /// Offset in the arena to bytes.
    pieces: BTreeMap<u64, u64>,
    free: Ranges,
    /// Freed blocks whose last use may be under way, by their size.
    idle: HashMap<u64, Vec<Idle>>,
}

struct Idle {
    offset: u64,
    /// The stream of the free; `None` where the host knew.
    stream: Option<u32>,
    /// All that comes before the free, and when that is complete.
    order: Order,
    ready: u64,
}

impl Pool {
    /// Used, as its attribute tells.
    pub fn all_used(&self) -> u64 {
        self.used + self.uncounted
    }

    pub fn new(device: usize, default: bool) -> Pool {
        let mut access = [0; MAX_DEVICES];
        access[device] = ACCESS_READ_WRITE as u8;
        Pool {
            device,
            default,
            destroyed: false,
            handle_types: 0,
            limit: u64::MAX,
            threshold: 0,
            reuse: [1; 3],
            reserved: 0,
            reserved_high: 0,
            used: 0,
            uncounted: 0,
            used_high: 0,
            access,
            pieces: BTreeMap::new(),
            free: Ranges::default(),
            idle: HashMap::new(),
        }
    }

    /// What the driver maps at once around an offset: its offset and bytes.
    pub fn mapping_at(&self, offset: u64) -> Option<(u64, u64)> {
        let (start, bytes) = self.pieces.range(..=offset).next_back()?;
        let first = start + (offset - start) / PIECE * PIECE;
        Some((first, PIECE.min(start + bytes - first)))
    }
}

impl Sim {
    /// Takes a block for use on a stream; its offset in the arena.
    pub fn take_block(&mut self, handle: u64, held: u64, id: u32) -> Result<u64, Code> {
        let mut found = self.take_idle(handle, held, id);
        if found.is_none() {
            self.reclaim(handle);
            found = self.pools.get_mut(&handle).and_then(|p| p.free.take(held));
        }
        if found.is_none() {
            self.grow_pool(handle, held)?;
            found = self.pools.get_mut(&handle).and_then(|p| p.free.take(held));
        }
        found.ok_or(Code::OUT_OF_MEMORY)
    }

    /// So many bytes, as asked for, were lent.
    pub fn count_used(&mut self, handle: u64, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used += bytes;
            pool.used_high = pool.used_high.max(pool.all_used());
        }
    }

    /// Gives a block back: behind a stream's work, or (`None`) now.
    pub fn give_block(&mut self, handle: u64, offset: u64, held: u64, stream: Option<u32>) {
        let (order, ready) = stream.map(|id| self.position(id)).unwrap_or_default();
        let Some(pool) = self.pools.get_mut(&handle) else {
            return;
        };
        pool.idle.entry(held).or_default().push(Idle {
            offset,
            stream,
            order,
            ready,
        });
        if pool.destroyed {
            self.trim_pool(handle, 0);
        }
    }

    /// A freed block of this size that this stream may use without a wait.
    fn take_idle(&mut self, handle: u64, held: u64, id: u32) -> Option<u64> {
        let list = self.pools.get(&handle)?.idle.get(&held)?;
        let before = &self.streams[&id].before;
        let usable = |idle: &Idle| {
            idle.stream == Some(id)
                || idle.order.iter().all(|(other, count)| {
                    self.is_observed(*other, *count)
                        || before.get(other).is_some_and(|known| known >= count)
                })
        };
        let at = list.iter().rposition(usable)?;
        let list = self.pools.get_mut(&handle)?.idle.get_mut(&held)?;
        Some(list.swap_remove(at).offset)
    }

    /// Frees the idle blocks whose last use is over by the clock: unlike a
    /// program, the driver knows.
    fn reclaim(&mut self, handle: u64) {
        let now = self.clock.now();
        let Some(pool) = self.pools.get_mut(&handle) else {
            return;
        };
        let object = pool.device as u32;
        for (held, list) in &mut pool.idle {
            list.retain(|idle| {
                if idle.ready <= now {
                    pool.free.give(idle.offset, *held);
                    self.shadow.forget(object, idle.offset, *held);
                }
                idle.ready > now
            });
        }
        pool.idle.retain(|_, list| !list.is_empty());
    }

    /// Takes a piece from the device: a usual one, else just enough, else
    /// after every pool of the device gave back what it can.
    fn grow_pool(&mut self, handle: u64, held: u64) -> Result<(), Code> {
        let pool = self.pools.get(&handle).ok_or(Code::INVALID_VALUE)?;
        let (device, most) = (pool.device, pool.limit.saturating_sub(pool.reserved));
        let least = held.next_multiple_of(GRANULE);
        if least > most {
            return Err(Code::OUT_OF_MEMORY);
        }
        let usual = held.next_multiple_of(PIECE).min(most / GRANULE * GRANULE);
        let mut taken = Err(Code::OUT_OF_MEMORY);
        for (bytes, trim) in [(usual, false), (least, false), (least, true)] {
            if trim {
                self.trim_pools(device)?;
            }
            let offset = self.devices[device]
                .arena
                .take_granules(bytes, &mut self.ledger);
            taken = offset.map(|offset| (offset, bytes));
            if taken.is_ok() {
                break;
            }
        }
        let (offset, bytes) = taken?;
        let pool = self.pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        pool.pieces.insert(offset, bytes);
        pool.free.give(offset, bytes);
        pool.reserved += bytes;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        Ok(())
    }

    /// Gives whole free pieces back, down to `keep` reserved bytes.
    pub fn trim_pool(&mut self, handle: u64, keep: u64) {
        self.reclaim(handle);
        let Some(pool) = self.pools.get_mut(&handle) else {
            return;
        };
        let arena = &mut self.devices[pool.device].arena;
        pool.pieces.retain(|offset, bytes| {
            let go = pool.reserved > keep && pool.free.covers(*offset, *bytes);
            if go {
                pool.free.carve(*offset, *bytes);
                pool.reserved -= *bytes;
                arena.give_granules(*offset, *bytes, &mut self.ledger);
            }
            !go
        });
        if pool.destroyed && pool.reserved == 0 {
            self.pools.remove(&handle);
        }
    }

    /// After a synchronisation pools give back what is over their threshold.
    pub fn release_unused(&mut self) {
        self.settle();
        let over = |(id, p): (&u64, &Pool)| {
            (p.reserved > p.threshold && p.reserved > p.used).then_some((*id, p.threshold))
        };
        let pools: Vec<(u64, u64)> = self.pools.iter().filter_map(over).collect();
        for (pool, keep) in pools {
            self.trim_pool(pool, keep);
        }
    }

    /// Memory is short: the pools of a device give back all that is idle, and
    /// wait for it.
    pub fn trim_pools(&mut self, device: usize) -> Answer {
        let idle =
            |(id, p): (&u64, &Pool)| (p.device == device && p.reserved > p.used).then_some(*id);
        let pools: Vec<u64> = self.pools.iter().filter_map(idle).collect();
        if pools.is_empty() {
            return Ok(());
        }
        self.drain_device(device)?;
        for pool in pools {
            self.trim_pool(pool, 0);
        }
        Ok(())
    }
}
