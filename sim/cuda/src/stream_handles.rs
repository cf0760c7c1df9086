//! The handles of streams that the program made. That of a destroyed one is given to the
//! next, as drivers do: who still keeps it means another stream by it.

use std::collections::{HashMap, HashSet};

const BASE: u64 = 0x7300_0000_0000;

#[derive(Default)]
pub struct StreamHandles {
    streams: HashMap<u64, u32>,
    spare: Vec<u64>,
    /// Of streams whose green context is gone.
    detached: HashSet<u64>,
}

impl StreamHandles {
    /// A handle for a new stream.
    pub fn give(&mut self, stream: u32) -> u64 {
        let spare = self.spare.pop();
        let handle = spare.unwrap_or(BASE + u64::from(stream));
        self.streams.insert(handle, stream);
        handle
    }

    /// The stream that a handle stands for.
    pub fn stream(&self, handle: u64) -> Option<u32> {
        self.streams.get(&handle).copied()
    }

    /// The handle of a stream, if it has one still.
    pub fn of(&self, stream: u32) -> Option<u64> {
        let mut all = self.streams.iter();
        all.find(|(_, of)| **of == stream)
            .map(|(handle, _)| *handle)
    }

    /// The green context of the stream is gone: nothing but its end can be asked for.
    pub fn detach(&mut self, stream: u32) {
        if let Some(handle) = self.of(stream) {
            self.streams.remove(&handle);
            self.detached.insert(handle);
        }
    }

    /// Was the stream of this handle detached, and not destroyed since?
    pub fn is_detached(&self, handle: u64) -> bool {
        self.detached.contains(&handle)
    }

    /// A stream is gone with its context.
    pub fn end_of(&mut self, stream: u32) {
        if let Some(handle) = self.of(stream) {
            self.end(handle);
        }
    }

    /// The stream is destroyed.
    pub fn end(&mut self, handle: u64) {
        if self.streams.remove(&handle).is_some() || self.detached.remove(&handle) {
            self.spare.push(handle);
        }
    }
}
