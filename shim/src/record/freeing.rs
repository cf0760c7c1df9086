//! A free, whose place in the recording is taken before the memory comes back.

use memcuda_core::driver::Address;
use memcuda_core::frames::{Kind, Record, Use};
use memcuda_core::pool::{BlockInfo, Release};

use super::{Caller, Recorder, blank};

/// A free under way: its place in the file is taken. Dropped without a word it
/// was none.
pub struct Freeing<'a> {
    recorder: &'a Recorder,
    place: Option<u64>,
    blank: Record,
}

impl Recorder {
    /// A free begins.
    pub fn freeing(&self, address: Address, device: u32, caller: Caller) -> Freeing<'_> {
        let record = Record {
            address,
            device: device as u8,
            ..blank(Kind::Nothing)
        };
        // Words before the frame that names them.
        let record = self.by(record, caller);
        let place = self.file.claim(1);
        if place.is_none() {
            self.file.lose();
        }
        Freeing {
            recorder: self,
            place,
            blank: Record {
                time_ns: self.now(),
                ..record
            },
        }
    }
}

impl Freeing<'_> {
    /// The pool took a block back.
    pub fn of_pool(self, freed: &BlockInfo, release: Release) {
        let (uses, stream, context) = match release {
            Release::Stream(key) => (Use::Stream, key.stream.0, key.context),
            Release::Complete | Release::Own => (Use::Complete, 0, freed.context),
            Release::Unknown => (Use::Any, 0, freed.context),
        };
        let record = Record {
            bytes: freed.bytes,
            stream,
            context: context.0,
            uses,
            ..self.blank
        };
        self.done(record);
    }

    /// Torch has unmapped a page, all work on which is complete.
    pub fn of_page(self, bytes: u64) {
        let record = Record {
            bytes,
            page: true,
            uses: Use::Complete,
            ..self.blank
        };
        self.done(record);
    }

    /// The plain driver took memory back, or the keeper.
    pub fn of_others(self) {
        let record = Record {
            plain: true,
            uses: Use::Any,
            ..self.blank
        };
        self.done(record);
    }

    fn done(mut self, record: Record) {
        let record = Record {
            kind: Kind::Free,
            ..record
        };
        if let Some(place) = self.place.take() {
            self.recorder.file.write(place, &record.encode(place));
        }
    }
}

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.recorder.file.write(place, &self.blank.encode(place));
        }
    }
}
