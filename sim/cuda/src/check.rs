//! The checker of accesses: every byte of physical memory remembers who used
//! it last, and a use that is not ordered behind that one ends the program,
//! whether or not the clock happened to run them one after the other.

use std::collections::{BTreeMap, HashMap};

use crate::memory::Piece;
use crate::state::Sim;

/// A range that work reads or writes.
#[derive(Clone)]
pub struct Touch {
    pub base: u64,
    pub bytes: u64,
    pub write: bool,
    /// The call that queued the work.
    pub call: &'static str,
}

/// One use of a range, by an operation of a stream.
#[derive(Clone)]
pub struct Access {
    stream: u32,
    count: u64,
    /// Virtual address minus physical offset: tells one alias from another.
    alias: u64,
    call: &'static str,
}

#[derive(Clone)]
struct Cell {
    end: u64,
    write: Option<Access>,
    /// Reads since that write, at most one of each stream.
    reads: Vec<Access>,
}

impl Cell {
    fn read(end: u64, by: Access) -> Self {
        let (write, reads) = (None, vec![by]);
        Self { end, write, reads }
    }

    fn written(end: u64, by: Access) -> Self {
        let (write, reads) = (Some(by), Vec::new());
        Self { end, write, reads }
    }
}

/// For each physical object, the last uses of its bytes.
#[derive(Default)]
pub struct Shadow(HashMap<u32, BTreeMap<u64, Cell>>);

impl Shadow {
    /// Splits cells so that `[start, end)` is covered by whole ones.
    fn split(&mut self, object: u32, start: u64, end: u64) -> &mut BTreeMap<u64, Cell> {
        let cells = self.0.entry(object).or_default();
        for at in [start, end] {
            if let Some((&first, cell)) = cells.range_mut(..at).next_back()
                && cell.end > at
            {
                let mut right = cell.clone();
                cell.end = at;
                right.end = right.end.max(at);
                debug_assert!(first < at);
                cells.insert(at, right);
            }
        }
        cells
    }

    /// The memory is new: nobody used it yet.
    pub fn forget(&mut self, object: u32, offset: u64, bytes: u64) {
        let cells = self.split(object, offset, offset + bytes);
        let keys: Vec<u64> = cells
            .range(offset..offset + bytes)
            .map(|(k, _)| *k)
            .collect();
        for key in keys {
            cells.remove(&key);
        }
    }
}

/// Ends the program with what happened.
pub fn misuse(text: &str) -> ! {
    let line = format!("memcuda-sim: MISUSE: {text}\n");
    // SAFETY: the buffer has the length that is passed.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    std::process::abort()
}

/// A range for a message.
pub fn span(base: u64, bytes: u64) -> String {
    format!("[{base:#x}, {:#x})", base + bytes)
}

impl Sim {
    /// Checks one range that the operation just queued on a stream touches.
    pub fn check_touch(&mut self, id: u32, touch: &Touch) {
        if touch.bytes == 0 {
            return;
        }
        let call = touch.call;
        let pieces = self
            .resolve(touch.base, touch.bytes)
            .unwrap_or_else(|hole| {
                misuse(&format!(
                    "{call} on {} {} {}: {}",
                    self.stream_name(id),
                    if touch.write { "writes" } else { "reads" },
                    span(touch.base, touch.bytes),
                    self.explain_hole(hole),
                ))
            });
        for piece in pieces {
            self.check_device_access(id, touch, &piece);
            self.check_claim(id, touch, &piece);
            self.check_order(id, touch, &piece);
            self.note_use(id, &piece, call);
        }
    }

    fn check_order(&mut self, id: u32, touch: &Touch, piece: &Piece) {
        let count = self.streams[&id].count;
        let access = Access {
            stream: id,
            count,
            alias: piece.va.wrapping_sub(piece.offset),
            call: touch.call,
        };
        let (start, end) = (piece.offset, piece.offset + piece.bytes);
        let mut cells = std::mem::take(self.shadow.split(piece.object, start, end));
        let keys: Vec<u64> = cells.range(start..end).map(|(key, _)| *key).collect();
        let mut covered = start;
        let mut kept = Vec::new();
        for key in keys {
            let Some(mut cell) = cells.remove(&key) else {
                continue;
            };
            if let Some(write) = &cell.write {
                self.check_pair(&access, touch, piece, write, true);
            }
            if touch.write {
                for read in &cell.reads {
                    self.check_pair(&access, touch, piece, read, false);
                }
                continue;
            }
            cell.write = cell.write.filter(|w| !self.is_observed(w.stream, w.count));
            cell.reads
                .retain(|read| read.stream != id && !self.is_observed(read.stream, read.count));
            cell.reads.push(access.clone());
            if covered < key {
                kept.push((covered, Cell::read(key, access.clone())));
            }
            covered = cell.end;
            kept.push((key, cell));
        }
        if touch.write {
            kept.push((start, Cell::written(end, access)));
        } else if covered < end {
            kept.push((covered, Cell::read(end, access)));
        }
        cells.extend(kept);
        self.shadow.0.insert(piece.object, cells);
    }

    fn check_pair(&self, new: &Access, touch: &Touch, piece: &Piece, old: &Access, wrote: bool) {
        if self.is_observed(old.stream, old.count) {
            return;
        }
        let verb = |write| if write { "writes" } else { "reads" };
        let place = span(piece.va, piece.bytes);
        if old.stream != new.stream {
            let known = self.streams[&new.stream]
                .before
                .get(&old.stream)
                .copied()
                .unwrap_or(0);
            if known < old.count {
                misuse(&format!(
                    "data race: {} on {} {} {place} while unfinished {} on {} {} the same bytes (at {:#x}), with no order between them",
                    new.call,
                    self.stream_name(new.stream),
                    verb(touch.write),
                    old.call,
                    self.stream_name(old.stream),
                    verb(wrote),
                    old.alias.wrapping_add(piece.offset),
                ));
            }
        } else if wrote && old.alias != new.alias && self.streams[&new.stream].fence < old.count {
            misuse(&format!(
                "stale alias: {} on {} {} {place}, but the same stream's unfinished {} wrote these bytes through {:#x}, with no event recorded and waited for in between",
                new.call,
                self.stream_name(new.stream),
                verb(touch.write),
                old.call,
                old.alias.wrapping_add(piece.offset),
            ));
        }
    }

    /// Refuses to take memory away from unfinished work. `ordered` names a
    /// stream behind which the memory goes; without it the host must know.
    pub fn check_unused(&self, piece: &Piece, ordered: Option<u32>, what: &str) {
        let Some(cells) = self.shadow.0.get(&piece.object) else {
            return;
        };
        let end = piece.offset + piece.bytes;
        let first = cells
            .range(..piece.offset)
            .next_back()
            .filter(|(_, c)| c.end > piece.offset);
        for (_, cell) in first.into_iter().chain(cells.range(piece.offset..end)) {
            for old in cell.write.iter().chain(&cell.reads) {
                if self.is_observed(old.stream, old.count) {
                    continue;
                }
                let before = ordered.is_some_and(|id| {
                    id == old.stream
                        || self.streams[&id]
                            .before
                            .get(&old.stream)
                            .is_some_and(|n| *n >= old.count)
                });
                if !before {
                    misuse(&format!(
                        "{} {what} {} while unfinished {} on {} uses it",
                        self.call,
                        span(piece.va, piece.bytes),
                        old.call,
                        self.stream_name(old.stream),
                    ));
                }
            }
        }
    }
}
