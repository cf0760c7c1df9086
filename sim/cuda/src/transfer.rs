//! Copies: work that really moves bytes.

use crate::abi::{Answer, Code};
use crate::check::{Touch, misuse};
use crate::clock::cost;
use crate::entry::api;
use crate::memory::holding;
use crate::state::{Sim, current_context};
use crate::stream::{Effect, Pending, Row};

/// When the call returns.
#[derive(PartialEq)]
pub enum Return {
    Complete,
    Queued,
}

/// What a call says of the two ends of a copy.
#[derive(Clone, Copy, PartialEq)]
pub enum Ends {
    /// Their addresses only.
    Addresses,
    /// The contexts that they belong to, too (`cuMemcpyPeer`); 0 for the host.
    Contexts { to: u64, from: u64 },
}

impl Sim {
    fn touch(&self, base: u64, bytes: u64, write: bool) -> Option<Touch> {
        let call = self.call;
        self.is_device_address(base).then_some(Touch {
            base,
            bytes,
            write,
            call,
        })
    }

    /// What of devices' memory a copy of these rows reads and writes.
    pub fn touches_of(&self, rows: &[Row]) -> Vec<Touch> {
        let of_row = |row: &Row| {
            let read = self.touch(row.from, row.bytes, false);
            [read, self.touch(row.to, row.bytes, true)]
        };
        rows.iter().flat_map(of_row).flatten().collect()
    }

    /// Copies between any two addresses, of the host or of devices.
    fn copy(&mut self, to: u64, from: u64, bytes: u64, stream: u64, when: Return) -> Answer {
        self.copy_of(Ends::Addresses, to, from, bytes, stream, when)
    }

    /// Copies between two devices: each end an address and its context.
    fn copy_peer(&mut self, to: (u64, u64), from: (u64, u64), bytes: u64, stream: u64) -> Answer {
        let ends = Ends::Contexts {
            to: to.1,
            from: from.1,
        };
        self.copy_of(ends, to.0, from.0, bytes, stream, Return::Queued)
    }

    fn copy_of(
        &mut self,
        ends: Ends,
        to: u64,
        from: u64,
        bytes: u64,
        stream: u64,
        when: Return,
    ) -> Answer {
        if bytes == 0 {
            let id = self.stream(stream)?;
            return self.joined_by_default(id).map(drop);
        }
        let known = |at| at != 0 && self.is_range(at, bytes);
        if !known(to) || !known(from) {
            self.stream(stream)?;
            return Err(Code::INVALID_VALUE);
        }
        self.copy_rows(ends, &[Row { to, from, bytes }], stream, when)
    }

    /// The devices that have to reach the destination and the source of a copy:
    /// where only addresses are told it is the current context's, on whichever
    /// stream. Where that context was ended elsewhere the copy is refused as any call that
    /// needs it, though the stream's own lives; a fill or a kernel, which needs the stream's
    /// alone, is not. No GPU was asked.
    fn makers(&self, ends: Ends, id: u32) -> Result<[Option<usize>; 2], Code> {
        let device = |context: u64| match context {
            0 => Ok(None),
            named => Ok(Some(self.contexts[&self.context(named)?].device)),
        };
        match ends {
            Ends::Contexts { to, from } => Ok([device(to)?, device(from)?]),
            Ends::Addresses => {
                let context = current_context().unwrap_or(self.streams[&id].context);
                self.healthy(context)?;
                Ok([device(context)?; 2])
            }
        }
    }

    /// May the devices at both ends make this row?
    pub fn reaches(&self, [to, from]: [Option<usize>; 2], row: &Row) -> bool {
        let reaches = |device: Option<usize>, at, write| match self.is_device_address(at) {
            true => device.is_some_and(|d| self.copies_reach(d, at, row.bytes, write)),
            false => true,
        };
        reaches(to, row.to, true) && reaches(from, row.from, false)
    }

    /// Does each end of all that is copied lie on one mapping, or on none? Where no context is
    /// current or named, nothing else is copied (docs/measurements/h100.md).
    pub fn are_on_one(&self, rows: &[Row]) -> bool {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return true;
        };
        let is_one = |at: fn(&Row) -> u64| {
            let begin = holding(&self.mappings, at(first), |it| it.bytes);
            let begin = begin.map_or(at(first), |(base, _)| base);
            self.mappings.range(begin..at(last) + last.bytes).count() < 2
        };
        is_one(|row| row.to) && is_one(|row| row.from)
    }

    /// Copies rows, all from one kind of memory to one other.
    pub fn copy_rows(&mut self, ends: Ends, rows: &[Row], stream: u64, mut when: Return) -> Answer {
        let id = self.stream(stream)?;
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let (into, out_of) = (
            self.is_device_address(first.to),
            self.is_device_address(first.from),
        );
        let makers = self.makers(ends, id)?;
        let is_nowhere = current_context().is_none() && ends == Ends::Addresses;
        if is_nowhere && !self.are_on_one(rows) {
            return Err(Code::INVALID_VALUE);
        }
        if !rows.iter().all(|row| self.reaches(makers, row)) {
            if is_nowhere {
                misuse(&format!(
                    "{} of memory that the device of {} does not reach, by a thread without a \
                     current context: the driver reads through null",
                    self.call,
                    self.stream_name(id),
                ));
            }
            return Err(Code::INVALID_VALUE);
        }
        if ends != Ends::Addresses {
            self.refuse_captured(id)?;
        }
        let bytes = rows.iter().map(|row| row.bytes).sum();
        let host = if into { first.from } else { first.to };
        let pinned = holding(&self.pinned, host, |it| it.bytes).is_some();
        let ns = match (into, out_of) {
            (true, true) => cost::device_copy(bytes),
            (false, false) => 1_000,
            _ => cost::host_copy(bytes, pinned),
        };
        let mut effect = Effect::Copy(rows.into());
        let captured = self.streams[&id].capture.is_some();
        // What a graph copies it reads when it is launched.
        if !out_of && !pinned && when == Return::Queued && !captured {
            effect = staged(rows, bytes);
        } else if !into && !pinned && !captured {
            // It returns from a copy into pageable memory when that is done.
            when = Return::Complete;
        }
        if when == Return::Complete {
            self.refuse_captured(id)?;
        }
        self.clock.charge(cost::LAUNCH);
        let touches = self.touches_of(rows);
        self.submit(id, ns, &touches, effect)?;
        if when == Return::Complete {
            self.wait_for(id);
            self.settle();
            let context = self.streams[&id].context;
            self.healthy(context)?;
        }
        Ok(())
    }

    /// What a call costs that opens memory to the device, and `ns` by itself: more while a
    /// copy to page-locked memory of the host runs.
    pub fn opening(&mut self, ns: u64) -> u64 {
        let now = self.clock.now();
        let mut queued = self.pending.range((now + 1, 0)..);
        let runs = |((end, _), work): (&(u64, u64), &Pending)| match &work.effect {
            Effect::Copy(rows) => {
                let pinned = |row: &Row| holding(&self.pinned, row.to, |it| it.bytes).is_some();
                let bytes = rows.iter().map(|row| row.bytes).sum();
                rows.iter().all(pinned) && *end <= now + cost::host_copy(bytes, true)
            }
            _ => false,
        };
        match queued.any(runs) {
            true => ns.max(cost::BESIDE_COPIES_TO_HOST),
            false => ns,
        }
    }
}

/// A copy of pageable memory, which the driver stages before it returns.
fn staged(rows: &[Row], bytes: u64) -> Effect {
    let mut staged = Vec::with_capacity(bytes as usize);
    for row in rows {
        // SAFETY: the program says that these bytes may be read.
        staged.extend_from_slice(unsafe {
            std::slice::from_raw_parts(row.from as *const u8, row.bytes as usize)
        });
    }
    Effect::Staged {
        rows: rows.into(),
        bytes: staged.into(),
    }
}

api! { defaults EXPORTS |sim|
    fn cuMemcpy | cuMemcpy_ptds [stream] (to: u64, from: u64, bytes: usize) {
        let when = match sim.is_device_address(to) && sim.is_device_address(from) {
            true => Return::Queued,
            false => Return::Complete,
        };
        sim.copy(to, from, bytes as u64, stream, when)
    }
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds [stream] (to: u64, from: u64, bytes: usize) {
        sim.copy(to, from, bytes as u64, stream, Return::Complete)
    }
    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds [stream] (to: u64, from: u64, bytes: usize) {
        sim.copy(to, from, bytes as u64, stream, Return::Complete)
    }
    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds [stream] (to: u64, from: u64, bytes: usize) {
        // Between two addresses of a device it is queued, though it names no stream.
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyPeer | cuMemcpyPeer_ptds [stream] (to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) {
        sim.copy_peer((to, to_context), (from, from_context), bytes as u64, stream)
    }
}

api! { streams STREAM_EXPORTS |sim|
    fn cuMemcpyAsync | cuMemcpyAsync_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz [stream] (to: u64, from: u64, bytes: usize, stream: u64) {
        sim.copy(to, from, bytes as u64, stream, Return::Queued)
    }
    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz [stream] (to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64) {
        sim.copy_peer((to, to_context), (from, from_context), bytes as u64, stream)
    }
}
