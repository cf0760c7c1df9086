//! What the driver's calls say of a copy, as one structure: lines, rows and
//! slices are all blocks of bytes between two ends. Nothing is copied here.

use memcuda_core::driver::{Address, Context};

/// `CUmemorytype`.
pub const HOST: u32 = 1;
pub const DEVICE: u32 = 2;
/// An address alone: the driver finds out whose it is.
pub const UNIFIED: u32 = 4;

/// One end of a [`Block`]. Which of the three places counts, `kind` says.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct End {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    /// A `CUmemorytype`.
    pub kind: u32,
    /// Of the host.
    host: Address,
    /// Of a device, or of anything.
    device: Address,
    array: u64,
    /// Whose a device's memory is; a `CUDA_MEMCPY3D` has no such member, but
    /// its room.
    context: Context,
    pitch: usize,
    rows: usize,
}

/// `CUDA_MEMCPY3D_PEER`; but for the contexts, `CUDA_MEMCPY3D`. Lengths are in
/// bytes, rows and slices.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub from: End,
    pub to: End,
    width: usize,
    height: usize,
    depth: usize,
}

/// One end of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct EndOfRows {
    x: usize,
    y: usize,
    kind: u32,
    host: Address,
    device: Address,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    from: EndOfRows,
    to: EndOfRows,
    width: usize,
    height: usize,
}

impl End {
    /// A place in memory.
    fn at(kind: u32, address: Address) -> End {
        End {
            kind,
            host: address,
            device: address,
            ..End::default()
        }
    }

    /// Whose memory it is, if it was told.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Is it given by `device`?
    pub fn is_device_address(&self) -> bool {
        matches!(self.kind, DEVICE | UNIFIED)
    }

    /// The same end, as memory of a context.
    pub fn of(self, context: Context) -> End {
        End { context, ..self }
    }

    /// The same end, as memory of the host.
    pub fn of_host(self) -> End {
        let host = match self.is_device_address() {
            true => self.device,
            false => self.host,
        };
        End {
            kind: HOST,
            host,
            ..self.of(Context::default())
        }
    }

    /// The first byte of an end that is given by `device`, and how many bytes on
    /// the last one lies; `None` where there is no such place. A pitch of 0 stands
    /// for rows without gaps, a number of rows of 0 for slices without.
    pub fn span(&self, block: &Block) -> Option<(Address, u64)> {
        let or = |given: usize, dense: usize| if given == 0 { dense } else { given };
        let pitch = or(self.pitch, self.x.checked_add(block.width)?);
        let rows = or(self.rows, self.y.checked_add(block.height)?);
        let slice = pitch.checked_mul(rows)?;
        let place = |x: usize, y: usize, z: usize| {
            let whole = z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?;
            whole.checked_add(x)
        };
        let last = |count: usize| count.checked_sub(1);
        let first = place(self.x, self.y, self.z)?;
        let length = place(block.width, last(block.height)?, last(block.depth)?)?;
        let first = self.device.checked_add(first as u64)?;
        first.checked_add(length as u64)?;
        Some((first, length as u64))
    }
}

impl Block {
    /// The first bytes of those ends that are given by `device`.
    pub fn places(&self) -> impl Iterator<Item = Address> {
        let ends = [&self.to, &self.from].map(|end| match end.is_device_address() {
            true => end.span(self).map(|(first, _)| first),
            false => None,
        });
        ends.into_iter().flatten()
    }

    /// Bytes in a line.
    pub fn line(to: (u32, Address), from: (u32, Address), bytes: usize) -> Block {
        let end = |(kind, address)| End {
            pitch: bytes,
            rows: 1,
            ..End::at(kind, address)
        };
        Block {
            from: end(from),
            to: end(to),
            width: bytes,
            height: 1,
            depth: 1,
        }
    }

    /// How many bytes it is, where it is a line as [`Block::line`] makes one. One row of a block
    /// with a place of its own, or with a pitch, is none.
    pub fn bytes_in_line(&self) -> Option<usize> {
        let begins = |end: &End| (end.x, end.y, end.z, end.pitch) == (0, 0, 0, self.width);
        let is_line = begins(&self.from) && begins(&self.to);
        (is_line && self.height == 1 && self.depth == 1).then_some(self.width)
    }

    /// A line's bytes from `begin` on, `bytes` of them.
    pub fn part_of_line(&self, begin: usize, bytes: usize) -> Block {
        let part = |end: End| End {
            host: end.host.wrapping_add(begin as u64),
            device: end.device.wrapping_add(begin as u64),
            pitch: bytes,
            ..end
        };
        Block {
            from: part(self.from),
            to: part(self.to),
            width: bytes,
            ..*self
        }
    }
}

impl From<Rows> for Block {
    fn from(rows: Rows) -> Block {
        let end = |end: EndOfRows| End {
            x: end.x,
            y: end.y,
            pitch: end.pitch,
            rows: end.y.saturating_add(rows.height),
            array: end.array,
            host: end.host,
            ..End::at(end.kind, end.device)
        };
        Block {
            from: end(rows.from),
            to: end(rows.to),
            width: rows.width,
            height: rows.height,
            depth: 1,
        }
    }
}

const _: () = {
    assert!(size_of::<Block>() == 200);
    assert!(size_of::<Rows>() == 128);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn block(end: End, width: usize, height: usize, depth: usize) -> Option<(Address, u64)> {
        let block = Block {
            from: end,
            to: end,
            width,
            height,
            depth,
        };
        end.span(&block)
    }

    #[test]
    fn a_block_reaches_from_its_first_byte_to_its_last() {
        let line = End::at(DEVICE, 0x1000);
        assert_eq!(block(line, 7, 1, 1), Some((0x1000, 7)));
        let rows = End {
            x: 3,
            y: 2,
            pitch: 100,
            ..line
        };
        assert_eq!(block(rows, 7, 4, 1), Some((0x1000 + 203, 307)));
        let slices = End {
            z: 1,
            rows: 10,
            ..rows
        };
        assert_eq!(block(slices, 7, 4, 3), Some((0x1000 + 1203, 2307)));
        // Without gaps: rows of 3 + 7 bytes, slices of 2 + 4 rows.
        let dense = End { pitch: 0, ..rows };
        assert_eq!(block(dense, 7, 4, 3), Some((0x1000 + 23, 157)));
    }

    #[test]
    fn the_parts_of_a_line_are_the_line() {
        let line = Block::line((DEVICE, 0x5000), (HOST, 0x1000), 100);
        let part = line.part_of_line(60, 40);
        assert_eq!(part.to.span(&part), Some((0x5000 + 60, 40)));
        assert_eq!((part.from.host, part.from.pitch), (0x1000 + 60, 40));
        assert_eq!(part.bytes_in_line(), Some(40));
    }

    #[test]
    fn a_row_of_a_block_is_no_line() {
        let line = Block::line((DEVICE, 0x5000), (HOST, 0x1000), 100);
        type Change = fn(&mut End);
        let places: [Change; 4] = [
            |end| end.x = 1,
            |end| end.y = 3,
            |end| end.z = 1,
            |end| end.pitch = 1024,
        ];
        for place in places {
            let (mut to, mut from) = (line, line);
            place(&mut to.to);
            place(&mut from.from);
            assert_eq!([to, from].map(|row| row.bytes_in_line()), [None; 2]);
        }
    }

    #[test]
    fn what_is_no_place_has_no_bytes() {
        let line = End::at(DEVICE, u64::MAX - 5);
        assert_eq!(block(line, 7, 1, 1), None);
        assert_eq!(block(End::at(DEVICE, 0x1000), 7, 0, 1), None);
        let wide = End {
            pitch: usize::MAX / 2,
            ..End::at(DEVICE, 0x1000)
        };
        assert_eq!(block(wide, 7, 4, 1), None);
    }
}
