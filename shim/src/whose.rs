//! Whose memory an address is: a block of a pool, a run of torch's pages, which
//! stands for an allocation as well, or nothing of ours. What programs ask, export
//! and copy is answered the same for both. Changes nothing.

use memcuda_core::driver::Address;
use memcuda_core::driver::real::Real;
use memcuda_core::pages::{Found, Pages, Run};
use memcuda_core::pool::{BlockInfo, Grantee, Order, Owner, Pool};
use memcuda_core::units::MIB;
use std::ops::Range;

use crate::driver::marks::Which;
use crate::engine::device::Device;
use crate::engine::{self, Engine};

/// What an address is.
pub enum Whose<'a> {
    /// Nothing of ours.
    Foreign,
    /// Ours, and nothing is lent or in use there.
    Freed,
    /// Inside an allocation.
    Live(Memory<'a>),
}

/// An allocation, in the program's eyes.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// Whose memory it is.
    pub device: &'a Device,
    /// Where, how long, which.
    pub block: BlockInfo,
    /// What it is made of.
    pub below: Below<'a>,
}

/// What an allocation is made of.
#[derive(Clone, Copy)]
pub enum Below<'a> {
    /// A block of this pool.
    Pool(&'a Pool<Real>),
    /// A run of these pages.
    Pages(&'a Pages<Real>),
}

/// A page of the device in bytes: what the driver maps at least.
pub const PAGE: u64 = 2 * MIB;

/// The numbers of runs have this bit, which those of blocks do not reach.
const RUNS: u64 = 1 << 60;
/// Bits of a run's number in that of its allocation; above them the device's ordinal.
const RUN_BITS: u32 = 48;

/// Whose memory this is. Of an address that is nobody's it takes no lock.
pub fn of(engine: &Engine, address: Address) -> Whose<'_> {
    if let Some((device, pool)) = engine.owner(address) {
        return match pool.find(address) {
            Some(block) => Whose::Live(Memory {
                device,
                block,
                below: Below::Pool(pool),
            }),
            None => Whose::Freed,
        };
    }
    for device in &engine.devices {
        let Some(pages) = device.pages() else {
            continue;
        };
        match pages.find(address) {
            Found::Nothing => {}
            Found::Unused => return Whose::Freed,
            Found::Run(run) => return Whose::Live(Memory::of_run(device, pages, run)),
        }
    }
    Whose::Foreign
}

/// The allocation around an address, if there is one.
pub fn live(engine: &Engine, address: Address) -> Option<Memory<'_>> {
    match of(engine, address) {
        Whose::Live(memory) => Some(memory),
        Whose::Freed | Whose::Foreign => None,
    }
}

/// Is this address ours, live or not?
pub fn is_ours(engine: &Engine, address: Address) -> bool {
    !matches!(of(engine, address), Whose::Foreign)
}

/// The same, as far as the engine runs: for who has none to ask.
pub fn is_ours_now(address: Address) -> bool {
    engine::running().is_some_and(|engine| is_ours(engine, address))
}

impl<'a> Memory<'a> {
    /// A run, as an allocation of cudaMalloc's.
    pub fn of_run(device: &'a Device, pages: &'a Pages<Real>, run: Run) -> Self {
        let block = BlockInfo {
            base: run.base,
            bytes: run.bytes,
            id: RUNS | u64::from(device.ordinal) << RUN_BITS | run.id,
            context: run.context,
            owner: Owner::Context,
            graph: false,
            order: Order::Unknown,
            attached: false,
            parked: false,
            overrun: false,
            error: None,
        };
        Self {
            device,
            block,
            below: Below::Pages(pages),
        }
    }

    /// Is it torch's, as far as torch may be asked for it? Of all that ask by cudaMalloc torch
    /// alone has a stream for it.
    pub fn is_torchs(&self) -> bool {
        let has_stream = self.block.order != Order::Unknown;
        match self.below {
            Below::Pool(_) => self.block.owner == Owner::Context && has_stream,
            Below::Pages(_) => true,
        }
    }

    /// Does the current context reach it, by what the program asked for? Its device may reach all
    /// of the pool, for other contexts' sake. What is opened by name, or is made of torch's
    /// pages, says so itself, as does the driver where there is no current context.
    pub fn is_reached(&self, engine: &Engine) -> bool {
        let Ok((context, device)) = engine.current() else {
            return true;
        };
        match self.below {
            _ if device.ordinal == self.device.ordinal => true,
            Below::Pool(pool) if !self.block.attached => {
                let to = match self.block.owner {
                    Owner::Context => Grantee::Contexts {
                        reader: device.views.whole(context),
                        owner: self.device.views.whole(self.block.context),
                    },
                    Owner::MemoryPool => Grantee::MemoryPool,
                };
                pool.is_granted(device.ordinal, to)
            }
            _ => true,
        }
    }

    /// Bytes from an address in it to its end.
    pub fn bytes_from(&self, address: Address) -> u64 {
        self.block.bytes - (address - self.block.base)
    }

    /// The pages of the device on which it lies: all of them are mapped.
    pub fn pages(&self) -> Range<Address> {
        let end = self.block.base + self.block.bytes;
        self.block.base / PAGE * PAGE..end.next_multiple_of(PAGE)
    }

    /// How `memops` knows it.
    pub fn which(&self) -> Which {
        match self.below {
            Below::Pool(_) => Which::Block(self.block.id),
            Below::Pages(_) => Which::Range(self.block.base, self.block.bytes),
        }
    }
}
