//! Copies of rows and of slices of rows: `cuMemcpy2D`, `cuMemcpy3D`,
//! `cuMemcpy3DPeer`. Arrays have no bytes here, so a copy that names one is not
//! supported.

use crate::abi::{Answer, Code, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST};
use crate::entry::api;
use crate::state::Sim;
use crate::stream::Row;
use crate::transfer::{Ends, Return};

const MEMORYTYPE_ARRAY: u32 = 3;
const MEMORYTYPE_UNIFIED: u32 = 4;

/// One end of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct End2D {
    x: usize,
    y: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2D {
    from: End2D,
    to: End2D,
    width: usize,
    height: usize,
}

/// One end of a `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct End3D {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    /// Of `CUDA_MEMCPY3D_PEER`, which is the same but for this; else reserved.
    context: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3D {
    from: End3D,
    to: End3D,
    width: usize,
    height: usize,
    depth: usize,
}

impl From<Copy2D> for Copy3D {
    fn from(copy: Copy2D) -> Copy3D {
        Copy3D {
            from: copy.from.into(),
            to: copy.to.into(),
            width: copy.width,
            height: copy.height,
            depth: 1,
        }
    }
}

impl From<End2D> for End3D {
    fn from(end: End2D) -> End3D {
        End3D {
            x: end.x,
            y: end.y,
            z: 0,
            level: 0,
            kind: end.kind,
            host: end.host,
            device: end.device,
            array: end.array,
            context: 0,
            pitch: end.pitch,
            height: 0,
        }
    }
}

/// Where the rows of one end lie.
struct Place {
    first: u64,
    pitch: u64,
    slice: u64,
    /// From the address that was given to the end of the last row.
    reach: u64,
}

impl End3D {
    fn base(&self) -> Result<u64, Code> {
        match self.kind {
            MEMORYTYPE_HOST => Ok(self.host),
            MEMORYTYPE_DEVICE | MEMORYTYPE_UNIFIED => Ok(self.device),
            MEMORYTYPE_ARRAY if self.array != 0 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// A pitch of 0 stands for rows, and a height of 0 for slices, without gaps.
    /// `None` where no addresses are such a place.
    fn place(&self, base: u64, [width, height, depth]: [u64; 3]) -> Option<Place> {
        let [x, y, z] = [self.x, self.y, self.z].map(|offset| offset as u64);
        let (right, below) = (x.checked_add(width)?, y.checked_add(height)?);
        let or = |given: usize, dense: u64| if given == 0 { dense } else { given as u64 };
        let (pitch, rows) = (or(self.pitch, right), or(self.height, below));
        if base == 0 || pitch < right || (depth > 1 && rows < below) {
            return None;
        }
        let slice = pitch.checked_mul(rows)?;
        let at = |x: u64, y: u64, z: u64| {
            let whole = z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?;
            whole.checked_add(x)
        };
        let first = at(x, y, z)?;
        let last = at(width, height - 1, depth - 1)?;
        Some(Place {
            first: base.checked_add(first)?,
            pitch,
            slice,
            reach: first.checked_add(last)?,
        })
    }
}

impl Sim {
    fn place(&self, end: &End3D, extent: [u64; 3]) -> Result<Place, Code> {
        let base = end.base()?;
        let place = end.place(base, extent);
        let place = place.filter(|place| self.is_range(base, place.reach));
        place.ok_or(Code::INVALID_VALUE)
    }

    /// Every row of a copy; none where nothing is copied.
    pub fn rows_of(&self, copy: &Copy3D) -> Result<Vec<Row>, Code> {
        let extent = [copy.width, copy.height, copy.depth].map(|length| length as u64);
        if extent.contains(&0) {
            return Ok(Vec::new());
        }
        let from = self.place(&copy.from, extent)?;
        let to = self.place(&copy.to, extent)?;
        let [bytes, height, depth] = extent;
        let row = |z: u64, y: u64| Row {
            to: to.first + z * to.slice + y * to.pitch,
            from: from.first + z * from.slice + y * from.pitch,
            bytes,
        };
        let row = &row;
        Ok((0..depth)
            .flat_map(|z| (0..height).map(move |y| row(z, y)))
            .collect())
    }

    fn copy_block(&mut self, ends: Ends, copy: Copy3D, stream: u64, when: Return) -> Answer {
        self.stream(stream)?;
        let rows = self.rows_of(&copy)?;
        self.copy_rows(ends, &rows, stream, when)
    }

    /// Between two addresses of devices the copy is queued, whatever was called.
    fn between_devices(from: u32, to: u32) -> Return {
        match (from, to) {
            (MEMORYTYPE_DEVICE, MEMORYTYPE_DEVICE) => Return::Queued,
            _ => Return::Complete,
        }
    }

    fn copy_shape<Shape: Into<Copy3D>>(
        &mut self,
        copy: *const Shape,
        stream: u64,
        queued: bool,
    ) -> Answer {
        if copy.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let c: Copy3D = unsafe { copy.read() }.into();
        let when = match queued {
            true => Return::Queued,
            false => Sim::between_devices(c.from.kind, c.to.kind),
        };
        self.copy_block(Ends::Addresses, c, stream, when)
    }

    fn copy_block_peer(&mut self, copy: *const Copy3D, stream: u64, queued: bool) -> Answer {
        if copy.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a whole structure.
        let c = unsafe { copy.read() };
        let when = match queued {
            true => Return::Queued,
            false => Sim::between_devices(c.from.kind, c.to.kind),
        };
        let context = |end: &End3D| match end.kind {
            MEMORYTYPE_HOST => 0,
            _ => end.context,
        };
        let ends = Ends::Contexts {
            to: context(&c.to),
            from: context(&c.from),
        };
        self.copy_block(ends, c, stream, when)
    }
}

api! { defaults EXPORTS |sim|
    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds [stream] (copy: *const Copy2D) {
        sim.copy_shape(copy, stream, false)
    }
    fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds [stream] (copy: *const Copy2D) {
        sim.copy_shape(copy, stream, false)
    }
    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds [stream] (copy: *const Copy3D) {
        sim.copy_shape(copy, stream, false)
    }
    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds [stream] (copy: *const Copy3D) {
        sim.copy_block_peer(copy, stream, false)
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz [stream] (copy: *const Copy2D, stream: u64) {
        sim.copy_shape(copy, stream, true)
    }
    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz [stream] (copy: *const Copy3D, stream: u64) {
        sim.copy_shape(copy, stream, true)
    }
    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz [stream] (copy: *const Copy3D, stream: u64) {
        sim.copy_block_peer(copy, stream, true)
    }
}

const _: () = {
    assert!(size_of::<Copy2D>() == 128);
    assert!(size_of::<Copy3D>() == 200);
};
