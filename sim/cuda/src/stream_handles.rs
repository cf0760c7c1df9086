//! The handles of streams that the program made. That of a destroyed one is given to the
//! next, as drivers do: who still keeps it means another stream by it.

use std::collections::HashMap;

const BASE: u64 = 0x7300_0000_0000;

#[derive(Default)]
pub struct StreamHandles {
    streams: HashMap<u64, u32>,
    spare: Vec<u64>,
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

    /// The stream is destroyed.
    pub fn end(&mut self, handle: u64) {
        if self.streams.remove(&handle).is_some() {
            self.spare.push(handle);
        }
    }
}
