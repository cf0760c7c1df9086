//! A chunk: one physical handle, and which of its bytes are free. Free space
//! is a property of chunks alone; stitches only show it at other addresses.
//! Makes no driver call.

use super::streams::{Streams, Use};
use crate::driver::Handle;

/// Index of a chunk in the pool.
pub type ChunkId = u32;
/// Index of a stitch in the pool.
pub type StitchId = u32;

/// A free byte interval and its last use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset in the chunk, in bytes.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Its last use.
    pub last: Use,
}

impl Span {
    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// One physical handle.
///
/// Invariant: `spans` is sorted, disjoint, and its lengths add up to `free`.
#[derive(Debug)]
pub struct Chunk {
    /// The driver's handle.
    pub handle: Handle,
    /// Its size in bytes.
    pub bytes: u64,
    /// Free bytes.
    pub free: u64,
    /// The free intervals.
    pub spans: Vec<Span>,
    /// The stitches that show it.
    pub shown_in: Vec<StitchId>,
}

impl Chunk {
    /// A fresh chunk, wholly free and never used.
    pub fn new(handle: Handle, bytes: u64) -> Self {
        let whole = Span {
            start: 0,
            bytes,
            last: Use::DONE,
        };
        Self {
            handle,
            bytes,
            free: bytes,
            spans: vec![whole],
            shown_in: Vec::new(),
        }
    }

    /// Is every byte free?
    pub fn is_free(&self) -> bool {
        self.free == self.bytes
    }

    /// Takes an interval that is wholly free.
    pub fn take(&mut self, start: u64, bytes: u64) {
        let end = start + bytes;
        let first = self.spans.partition_point(|span| span.end() <= start);
        let behind = self.spans.partition_point(|span| span.start < end);
        debug_assert!(self.covers(first, behind, start, end));
        let head = self.spans[first];
        let tail = self.spans[behind - 1];
        let left = (head.start < start).then(|| Span {
            bytes: start - head.start,
            ..head
        });
        let right = (tail.end() > end).then(|| Span {
            start: end,
            bytes: tail.end() - end,
            ..tail
        });
        self.spans
            .splice(first..behind, left.into_iter().chain(right));
        self.free -= bytes;
    }

    /// The free intervals below an interval, as far as they lie in it.
    pub fn below(&self, start: u64, bytes: u64) -> impl Iterator<Item = Span> + '_ {
        let end = start + bytes;
        let first = self.spans.partition_point(|span| span.end() <= start);
        let below = self.spans[first..].iter();
        below
            .take_while(move |span| span.start < end)
            .map(move |span| {
                let from = span.start.max(start);
                Span {
                    start: from,
                    bytes: span.end().min(end) - from,
                    last: span.last,
                }
            })
    }

    /// The last uses below an interval.
    pub fn uses(&self, start: u64, bytes: u64) -> impl Iterator<Item = Use> + '_ {
        self.below(start, bytes).map(|span| span.last)
    }

    /// Gives an interval back; neighbours with the same kind of last use
    /// become one interval.
    pub fn give(&mut self, start: u64, bytes: u64, last: Use, streams: &Streams) {
        let mut span = Span { start, bytes, last };
        let mut first = self.spans.partition_point(|other| other.end() <= start);
        let mut behind = first;
        debug_assert!(first == self.spans.len() || self.spans[first].start >= span.end());
        if first > 0
            && self.spans[first - 1].end() == start
            && let Some(last) = merged(self.spans[first - 1].last, span.last, streams)
        {
            first -= 1;
            span.start = self.spans[first].start;
            span.bytes += self.spans[first].bytes;
            span.last = last;
        }
        if behind < self.spans.len()
            && self.spans[behind].start == span.end()
            && let Some(last) = merged(self.spans[behind].last, span.last, streams)
        {
            span.bytes += self.spans[behind].bytes;
            span.last = last;
            behind += 1;
        }
        self.spans.splice(first..behind, [span]);
        self.free += bytes;
    }

    /// Tells from where to where it is free and `usable`, in order; what it tells may touch.
    pub fn each_free(&self, usable: impl Fn(Use) -> bool, mut tell: impl FnMut(u64, u64)) {
        let usable = self.spans.iter().filter(|span| usable(span.last));
        usable.for_each(|span| tell(span.start, span.end()));
    }

    /// The free interval that ends with the chunk, as far as `usable` allows.
    pub fn free_tail(&self, usable: impl Fn(Use) -> bool) -> u64 {
        let mut from = self.bytes;
        for span in self.spans.iter().rev() {
            if span.end() != from || !usable(span.last) {
                break;
            }
            from = span.start;
        }
        self.bytes - from
    }

    /// The free interval that begins with the chunk, as far as `usable` allows.
    pub fn free_head(&self, usable: impl Fn(Use) -> bool) -> u64 {
        let mut to = 0;
        for span in &self.spans {
            if span.start != to || !usable(span.last) {
                break;
            }
            to = span.end();
        }
        to
    }

    fn covers(&self, first: usize, behind: usize, start: u64, end: u64) -> bool {
        let spans = &self.spans[first..behind];
        !spans.is_empty()
            && spans[0].start <= start
            && spans[spans.len() - 1].end() >= end
            && spans.windows(2).all(|pair| pair[0].end() == pair[1].start)
    }
}

/// One use that stands for both, or `None` where they must stay apart.
fn merged(a: Use, b: Use, streams: &Streams) -> Option<Use> {
    match (streams.is_done(a), streams.is_done(b)) {
        (true, true) => Some(Use::DONE),
        (false, false) if a.stream == b.stream => Some(Use {
            stream: a.stream,
            alias: if a.alias == b.alias {
                a.alias
            } else {
                Use::MIXED
            },
            seq: a.seq.max(b.seq),
        }),
        // A finished use beside a running one of the same stream costs
        // nothing to forget; of another stream it would spread the wait.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Context, Stream};
    use crate::pool::StreamKey;

    fn used(stream: u32, seq: u64) -> Use {
        Use {
            stream,
            alias: 0,
            seq,
        }
    }

    #[test]
    fn taking_splits_and_giving_merges() {
        let streams = Streams::default();
        let mut chunk = Chunk::new(Handle(1), 4096);
        chunk.take(1024, 1024);
        assert_eq!((chunk.free, chunk.spans.len()), (3072, 2));
        assert_eq!(chunk.free_head(|_| true), 1024);
        assert_eq!(chunk.free_tail(|_| true), 2048);
        chunk.give(1024, 1024, Use::DONE, &streams);
        assert!(chunk.is_free());
        assert_eq!(chunk.spans.len(), 1);
    }

    #[test]
    fn two_uses_of_one_stream_become_one_behind_both() {
        let mut streams = Streams::default();
        let id = streams.id(StreamKey::new(Context(1), Stream(9), 0));
        let other = |seq| Use {
            alias: 1,
            ..used(id, seq)
        };
        for (first, second) in [(used(id, 7), other(5)), (other(5), used(id, 7))] {
            let mut chunk = Chunk::new(Handle(1), 4096);
            chunk.take(0, 4096);
            chunk.give(0, 2048, first, &streams);
            chunk.give(2048, 2048, second, &streams);
            let alias = Use::MIXED;
            let both = Use {
                alias,
                ..used(id, 7)
            };
            let last: Vec<_> = chunk.spans.iter().map(|span| span.last).collect();
            assert_eq!(last, [both]);
        }
    }

    #[test]
    fn every_use_below_an_interval_is_told() {
        let mut streams = Streams::default();
        let id = streams.id(StreamKey::new(Context(1), Stream(9), 0));
        let mut chunk = Chunk::new(Handle(1), 4096);
        chunk.take(0, 4096);
        chunk.give(0, 2048, Use::DONE, &streams);
        chunk.spans[0].last = used(id, 7);
        chunk.give(2048, 2048, Use::DONE, &streams);
        assert_eq!(chunk.spans.len(), 2, "different users stay apart");
        let below: Vec<_> = chunk.uses(1024, 2048).collect();
        assert_eq!(below, [used(id, 7), Use::DONE]);
        chunk.take(1024, 2048);
        assert_eq!(chunk.free, 2048);
    }
}
