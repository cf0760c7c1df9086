//! Who used memory through one mapping. What `check` remembers of a byte is its
//! last write and the reads since, through whichever alias; so a mapping has its
//! own memory of its uses, which no later use through another alias takes away.
//! An address that ends ends for all of the work that goes through it.

use crate::check::{misuse, span};
use crate::memory::{Piece, Source, holding};
use crate::order::MANY;
use crate::state::Sim;

/// The last use of each stream. A stream's earlier ones are complete before it.
#[derive(Default)]
pub struct Uses(Vec<Use>);

struct Use {
    stream: u32,
    count: u64,
    call: &'static str,
}

impl Uses {
    fn add(&mut self, stream: u32, count: u64, call: &'static str) {
        let last = Use {
            stream,
            count,
            call,
        };
        match self.0.iter_mut().find(|used| used.stream == stream) {
            Some(used) => *used = last,
            None => self.0.push(last),
        }
    }
}

impl Sim {
    /// The operation just queued on a stream uses memory through the mapping, or the
    /// opened handle, in which the piece lies. Other memory has one address.
    pub fn note_use(&mut self, id: u32, piece: &Piece, call: &'static str) {
        let count = self.streams[&id].count;
        let Some(uses) = self.uses_at(piece.va) else {
            return;
        };
        uses.add(id, count, call);
        if uses.0.len() > MANY {
            let mut all = std::mem::take(&mut uses.0);
            all.retain(|used| !self.is_observed(used.stream, used.count));
            if let Some(uses) = self.uses_at(piece.va) {
                uses.0 = all;
            }
        }
    }

    fn uses_at(&mut self, address: u64) -> Option<&mut Uses> {
        let mapping = self.mappings.range_mut(..=address).next_back();
        if let Some((base, mapping)) = mapping
            && address - base < mapping.bytes
        {
            return Some(&mut mapping.uses);
        }
        let (base, allocation) = holding(&self.allocations, address, |a| a.bytes)?;
        if allocation.source != Source::Ipc {
            return None;
        }
        self.opened.get_mut(&base).map(|opened| &mut opened.uses)
    }

    /// Refuses to end, or to narrow, the address of memory while work that the host does
    /// not know to be complete uses it there.
    pub fn check_unused_at(&mut self, base: u64, bytes: u64, what: &str) {
        let Some(uses) = self.uses_at(base) else {
            return;
        };
        // All of them end the program or are complete: none has to be kept.
        let uses = std::mem::take(&mut uses.0);
        let unfinished = |used: &&Use| !self.is_observed(used.stream, used.count);
        if let Some(used) = uses.iter().find(unfinished) {
            misuse(&format!(
                "{} {what} {} while unfinished {} on {} uses it",
                self.call,
                span(base, bytes),
                used.call,
                self.stream_name(used.stream),
            ));
        }
    }
}
