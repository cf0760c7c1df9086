//! A picture in order, as views tell it: what bytes are, how many are what, who has a
//! block and for which stream. Writes and draws nothing.

use std::collections::HashMap;

use memcuda::picture::layout::{Kind, Layout};
use memcuda::picture::{Block, Device, Owner, Picture, State};

/// What bytes are, as views tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The program's, and nobody else's.
    Live,
    /// Others may have them open, or they are theirs.
    Shared,
    /// Free, though uses of them may still run.
    Pending,
    /// Free.
    Idle,
    /// Neither: being lent or taken back, or the rest of attached memory.
    Held,
}

/// All that bytes can be, in the order of [`What`].
pub const KINDS: [What; 5] = [
    What::Live,
    What::Shared,
    What::Pending,
    What::Idle,
    What::Held,
];

/// How many bytes of a pool are what, and how the idle ones lie.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sums {
    sums: [u64; KINDS.len()],
    /// Runs of idle bytes inside chunks, and the longest of them.
    pub idle_runs: u64,
    pub largest_idle: u64,
}

impl Sums {
    /// How many bytes are this.
    pub fn of(&self, what: What) -> u64 {
        self.sums[what as usize]
    }
}

/// Texts that stand in many places, by numbers.
#[derive(Default)]
pub struct Words {
    /// The texts, each once.
    pub all: Vec<String>,
    by: HashMap<String, u64>,
}

impl Words {
    /// The number of a text.
    pub fn index(&mut self, word: String) -> u64 {
        let all = &mut self.all;
        *self.by.entry(word).or_insert_with_key(|word| {
            all.push(word.clone());
            all.len() as u64 - 1
        })
    }
}

/// For which stream a block is, in words.
pub fn stream(device: &Device, block: &Block) -> String {
    let stream = device.pool.stream(block);
    stream.map_or("any stream".to_owned(), |stream| stream.to_string())
}

/// A picture in order.
pub struct Reading<'a> {
    /// The picture.
    pub picture: &'a Picture,
    /// Its devices, each put in order.
    pub devices: Vec<(&'a Device, Layout)>,
    names: HashMap<(u32, u64), &'a str>,
}

impl<'a> Reading<'a> {
    /// Puts a picture in order.
    pub fn of(picture: &'a Picture) -> Self {
        let devices = picture.devices.iter();
        let names = picture.names.iter();
        Self {
            picture,
            devices: devices
                .map(|device| (device, Layout::of(&device.pool)))
                .collect(),
            names: names
                .map(|named| ((named.device, named.address), named.name.as_str()))
                .collect(),
        }
    }

    /// The name of a block, if it has one.
    pub fn name(&self, device: &Device, block: &Block) -> Option<&'a str> {
        self.names.get(&(device.ordinal, block.address)).copied()
    }

    /// What bytes are, as views tell them apart.
    pub fn what(&self, device: &Device, kind: Kind) -> What {
        let block = match kind {
            Kind::Pending => return What::Pending,
            Kind::Idle => return What::Idle,
            Kind::Held => return What::Held,
            Kind::Block(index) => &device.pool.blocks[index],
        };
        match block.state {
            State::Pending => What::Pending,
            State::Idle => What::Idle,
            State::Live if !block.exported && self.name(device, block).is_none() => What::Live,
            State::Live | State::Attached | State::Parked => What::Shared,
        }
    }

    /// How many bytes of a device are what.
    pub fn sums(&self, device: &Device, layout: &Layout) -> Sums {
        let mut sums = Sums::default();
        for parts in &layout.chunks {
            let mut run = 0;
            for part in parts {
                let what = self.what(device, part.kind);
                sums.sums[what as usize] += part.bytes;
                if what == What::Idle {
                    sums.idle_runs += u64::from(run == 0);
                    run += part.bytes;
                    sums.largest_idle = sums.largest_idle.max(run);
                } else {
                    run = 0;
                }
            }
        }
        sums
    }

    /// Who has a block, in words; `None` where nobody has it.
    pub fn who(&self, device: &Device, block: &Block) -> Option<String> {
        let what = match (block.state, self.name(device, block), block.owner) {
            (State::Pending | State::Idle, ..) => return None,
            (_, Some(name), _) => format!("name {name}"),
            (State::Attached, None, _) => "another process's memory".to_owned(),
            (State::Parked, ..) => "freed, but open in other processes".to_owned(),
            (State::Live, _, Owner::Context) => "cudaMalloc".to_owned(),
            (State::Live, _, Owner::MemoryPool) => "cudaMallocAsync".to_owned(),
            (State::Live, _, Owner::Page) => "a page of torch's expandable segments".to_owned(),
        };
        let shared = block.exported && block.state == State::Live;
        Some(if shared { what + ", exported" } else { what })
    }
}
