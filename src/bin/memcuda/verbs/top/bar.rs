//! The bar map: the bytes of a device's chunks, in their order, as so many cells.

use memcuda::picture::{Device, Picture};

use crate::pictures::reading::{KINDS, Reading, Sums, What};

/// What of a pool is to be told beside its map.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bars {
    /// What most bytes of each cell are.
    pub cells: Vec<What>,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// What is how much.
    pub sums: Sums,
    /// The device: its name and what it has.
    pub device: String,
    pub total: u64,
    pub limit: Option<u64>,
}

/// The map of a device of a picture.
pub fn bars(picture: &Picture, ordinal: u64, cells: usize) -> Option<Bars> {
    let reading = Reading::of(picture);
    let mut devices = reading.devices.iter();
    let (device, layout) = devices.find(|(device, _)| u64::from(device.ordinal) == ordinal)?;
    let device: &Device = device;
    let total: u64 = device.pool.chunks.iter().map(|chunk| chunk.bytes).sum();
    let mut bars = Bars {
        sums: reading.sums(device, layout),
        cell_bytes: total.div_ceil(cells.max(1) as u64).max(1),
        device: device.name.clone(),
        total: device.total_bytes,
        limit: device.limit_bytes,
        ..Bars::default()
    };
    let mut cell = [0_u64; 5];
    let mut room = bars.cell_bytes;
    for part in layout.chunks.iter().flatten() {
        let what = reading.what(device, part.kind);
        let mut left = part.bytes;
        while left > 0 {
            let taken = left.min(room);
            cell[what as usize] += taken;
            (left, room) = (left - taken, room - taken);
            if room == 0 {
                bars.cells.push(most(&cell));
                (cell, room) = ([0; 5], bars.cell_bytes);
            }
        }
    }
    if room < bars.cell_bytes {
        bars.cells.push(most(&cell));
    }
    Some(bars)
}

fn most(cell: &[u64; 5]) -> What {
    // Of equals the first.
    let most = KINDS
        .into_iter()
        .rev()
        .max_by_key(|what| cell[*what as usize]);
    most.unwrap_or(What::Held)
}
