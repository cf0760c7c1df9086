//! Live allocations as the test program declares them: two of them over one
//! physical byte, or work that reaches one through a foreign address, end the
//! program.

use std::collections::{BTreeMap, HashMap};

use crate::abi::{Answer, Code};
use crate::check::{Touch, misuse, span};
use crate::entry::api;
use crate::memory::Piece;
use crate::state::Sim;

/// Not yet known on which stream the allocation will be used.
const ANY_STREAM: u64 = u64::MAX;

#[derive(Default)]
pub struct Claims {
    /// Base to bytes.
    live: BTreeMap<u64, u64>,
    /// For each physical object: offset to (end, virtual address).
    physical: HashMap<u32, BTreeMap<u64, (u64, u64)>>,
}

impl Claims {
    /// The claimed ranges that overlap `[offset, offset + bytes)`: their
    /// offsets and virtual addresses.
    fn overlaps(&self, piece: &Piece) -> impl Iterator<Item = (u64, u64)> {
        let (first, end) = (piece.offset, piece.offset + piece.bytes);
        let ranges = self.physical.get(&piece.object).into_iter();
        ranges
            .flat_map(move |ranges| ranges.range(..end).rev())
            // Claims do not overlap: the first that ends before us is the last to look at.
            .take_while(move |(_, (stop, _))| *stop > first)
            .map(|(start, (_, va))| (*start, *va))
    }

    /// A live claim with an address in `[base, base + bytes)`.
    pub fn at(&self, base: u64, bytes: u64) -> Option<(u64, u64)> {
        let (at, length) = self.live.range(..base + bytes).next_back()?;
        (at + length > base).then_some((*at, *length))
    }
}

impl Sim {
    pub fn check_claim(&self, id: u32, touch: &Touch, piece: &Piece) {
        let alias = piece.va.wrapping_sub(piece.offset);
        for (start, va) in self.claims.overlaps(piece) {
            if va.wrapping_sub(start) != alias {
                misuse(&format!(
                    "{} on {} touches {}, bytes of the live allocation at {va:#x}, through another address",
                    touch.call,
                    self.stream_name(id),
                    span(piece.va, piece.bytes),
                ));
            }
        }
    }

    /// Refuses to take the address range of a live allocation away.
    pub fn check_unclaimed(&self, base: u64, bytes: u64, what: &str) {
        if let Some((at, length)) = self.claims.at(base, bytes) {
            misuse(&format!(
                "{} {what} {} under the live allocation {}",
                self.call,
                span(base, bytes),
                span(at, length),
            ));
        }
    }

    fn claim(&mut self, base: u64, bytes: u64, stream: u64) -> Answer {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = match stream {
            ANY_STREAM => None,
            handle => {
                let id = self.stream(handle)?;
                if self.streams[&id].capture.is_none() {
                    self.join_default(id)?;
                }
                Some(id)
            }
        };
        let pieces = self.resolve(base, bytes).unwrap_or_else(|hole| {
            misuse(&format!(
                "allocation {}: {}",
                span(base, bytes),
                self.explain_hole(hole)
            ))
        });
        if let Some((at, length)) = self.claims.at(base, bytes) {
            misuse(&format!(
                "two live allocations: {} overlaps {}",
                span(base, bytes),
                span(at, length)
            ));
        }
        for piece in &pieces {
            if let Some((_, va)) = self.claims.overlaps(piece).next() {
                misuse(&format!(
                    "two live allocations over the same physical bytes: {} and the one at {va:#x}",
                    span(piece.va, piece.bytes),
                ));
            }
            self.check_unused(piece, stream, "receives");
        }
        for piece in pieces {
            let ranges = self.claims.physical.entry(piece.object).or_default();
            ranges.insert(piece.offset, (piece.offset + piece.bytes, piece.va));
        }
        self.claims.live.insert(base, bytes);
        Ok(())
    }

    fn unclaim(&mut self, base: u64) -> Answer {
        let bytes = self.claims.live.remove(&base).ok_or(Code::INVALID_VALUE)?;
        let pieces = self.resolve(base, bytes).unwrap_or_else(|hole| {
            misuse(&format!(
                "live allocation {}: {}",
                span(base, bytes),
                self.explain_hole(hole)
            ))
        });
        for piece in pieces {
            if let Some(ranges) = self.claims.physical.get_mut(&piece.object) {
                ranges.remove(&piece.offset);
            }
        }
        Ok(())
    }
}

impl Sim {
    /// The allocations of a range end with their context.
    pub fn drop_claims(&mut self, base: u64, bytes: u64) {
        while let Some((at, _)) = self.claims.at(base, bytes) {
            if self.unclaim(at).is_err() {
                break;
            }
        }
    }
}

api! { plain EXPORTS |sim|
    fn cuSimClaim(base: u64, bytes: usize, stream: u64) {
        sim.claim(base, bytes as u64, stream)
    }
    fn cuSimRelease(base: u64) {
        sim.unclaim(base)
    }
}
