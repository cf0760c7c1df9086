//! What the keeper knows, written where it outlives the process: records in a
//! memory file, each with its length and a digest, the last one of a kind being
//! the valid one. Written before anybody is told. The file's descriptor is in
//! the vault; the file is made anew when it holds mostly what is over.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::keeper::entries::{ClientId, Item};
use crate::share::protocol::{Generation, Process};

/// The form of the records: a keeper reads its own.
pub const FORMAT: u32 = 2;
/// The file grows to this before it is made anew for the first time.
const SMALL: u64 = 4 << 20;

/// One thing to be known.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Record {
    /// The first record of a file.
    Begin {
        /// See [`FORMAT`].
        format: u32,
        /// How often the keeper was started anew.
        restarts: u32,
        /// The next client's number.
        next_client: ClientId,
    },
    /// A generation, as it is now.
    Item(Box<Item>),
    /// A part of a generation is gone.
    GaveUp(Generation, u32),
    /// A generation is gone.
    Gone(Generation),
    /// A client introduced itself.
    Joined(ClientId, Process),
    /// A client is gone, with all of its leases.
    Left(ClientId),
    /// How often a client holds a generation now.
    Held(ClientId, Generation, u32),
}

/// All that a journal says, at its end.
#[derive(Debug, Default, PartialEq)]
pub struct Known {
    /// See [`Record::Begin`].
    pub restarts: u32,
    /// See [`Record::Begin`].
    pub next_client: ClientId,
    /// Every generation.
    pub items: BTreeMap<Generation, Item>,
    /// Every client, with its leases.
    pub clients: BTreeMap<ClientId, (Process, HashMap<Generation, u32>)>,
}

/// The file that is written.
pub struct Journal {
    file: File,
    length: u64,
    after_renewal: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// A new, empty one.
    pub fn create() -> std::io::Result<Self> {
        let file = memfd_create("memcuda-keeper", MemfdFlags::CLOEXEC)?;
        Ok(Self {
            file: file.into(),
            length: 0,
            after_renewal: 0,
            buffer: Vec::new(),
        })
    }

    /// A descriptor of its file, for the vault.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// The first record.
    pub fn begin(&mut self, restarts: u32, next_client: ClientId) {
        self.add(&Record::Begin {
            format: FORMAT,
            restarts,
            next_client,
        });
    }

    /// Adds a record, to be written with the next [`Journal::write`].
    pub fn add(&mut self, record: &Record) {
        let Ok(bytes) = postcard::to_allocvec(record) else {
            return; // Only a record larger than memory.
        };
        self.buffer.extend((bytes.len() as u32).to_le_bytes());
        self.buffer.extend((digest(&bytes) as u32).to_le_bytes());
        self.buffer.extend(bytes);
    }

    /// Writes what was added.
    pub fn write(&mut self) -> std::io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_all_at(&self.buffer, self.length)?;
            self.length += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Is it time to make it anew?
    pub fn is_long(&self) -> bool {
        self.length > SMALL.max(4 * self.after_renewal)
    }

    /// What it has is all there is to know: measures later growth from here.
    pub fn renewed(&mut self) {
        self.after_renewal = self.length;
        self.buffer.shrink_to(64 << 10);
    }
}

/// Why a journal cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// A program of another version wrote it.
    Form(u32),
    /// It is none.
    Broken(String),
}

/// Reads a predecessor's journal, up to its end or to a record that was not
/// finished: nobody was told of that one.
pub fn read(file: OwnedFd) -> Result<Known, Unreadable> {
    let mut file = File::from(file);
    let mut bytes = Vec::new();
    let all = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    all.map_err(|error| Unreadable::Broken(error.to_string()))?;
    let mut known = Known::default();
    let mut rest = &bytes[..];
    let mut first = true;
    while let Some(record) = next(&mut rest) {
        match record {
            Record::Begin { format, .. } if format != FORMAT => {
                return Err(Unreadable::Form(format));
            }
            record if first != matches!(record, Record::Begin { .. }) => {
                let why = "it does not begin as a journal does";
                return Err(Unreadable::Broken(why.to_owned()));
            }
            record => known.learn(record),
        }
        first = false;
    }
    match first {
        true => Err(Unreadable::Broken("it is empty".to_owned())),
        false => Ok(known),
    }
}

fn next(rest: &mut &[u8]) -> Option<Record> {
    let (length, after) = rest.split_first_chunk()?;
    let (check, after) = after.split_first_chunk()?;
    let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if digest(bytes) as u32 != u32::from_le_bytes(*check) {
        return None;
    }
    *rest = after;
    postcard::from_bytes(bytes).ok()
}

impl Known {
    fn learn(&mut self, record: Record) {
        match record {
            Record::Begin {
                restarts,
                next_client,
                ..
            } => {
                self.restarts = restarts;
                self.next_client = next_client;
            }
            Record::Item(item) => {
                self.items.insert(item.generation, *item);
            }
            Record::GaveUp(generation, part) => {
                if let Some(item) = self.items.get_mut(&generation) {
                    item.give_up(part);
                }
            }
            Record::Gone(generation) => {
                self.items.remove(&generation);
            }
            Record::Joined(client, process) => {
                self.next_client = self.next_client.max(client + 1);
                // Said again, it holds what it held.
                let new = || (process, HashMap::new());
                self.clients.entry(client).or_insert_with(new);
            }
            Record::Left(client) => {
                self.clients.remove(&client);
            }
            Record::Held(client, generation, count) => {
                if let Some((_, leases)) = self.clients.get_mut(&client) {
                    match count {
                        0 => leases.remove(&generation),
                        count => leases.insert(generation, count),
                    };
                }
            }
        }
    }
}

/// FNV-1a, 64 bits.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        Process {
            pid: 7,
            started: 8,
            uid: 9,
            gid: 10,
            command: "x".to_owned(),
        }
    }

    #[test]
    fn what_was_written_is_known_and_what_was_not_finished_is_not() {
        let mut journal = Journal::create().unwrap();
        let generation = Generation([3; 16]);
        journal.begin(5, 1);
        journal.add(&Record::Joined(4, process()));
        journal.add(&Record::Held(4, generation, 2));
        // Said again, and the leases were not.
        journal.add(&Record::Joined(4, process()));
        journal.add(&Record::Joined(6, process()));
        journal.add(&Record::Left(6));
        journal.write().unwrap();
        let whole = journal.length;
        journal.add(&Record::Held(4, generation, 3));
        journal.write().unwrap();
        let known = read(journal.descriptor().unwrap()).unwrap();
        assert_eq!((known.restarts, known.next_client), (5, 7));
        assert_eq!(known.clients[&4].1[&generation], 3);
        assert_eq!(known.clients.len(), 1);
        // A write that was cut short anywhere.
        for length in whole..journal.length {
            journal.file.set_len(length).unwrap();
            let known = read(journal.descriptor().unwrap()).unwrap();
            assert_eq!(known.clients[&4].1[&generation], 2);
        }
        // And one that left other bytes.
        journal.file.set_len(whole).unwrap();
        journal.file.write_all_at(&[9; 40], whole).unwrap();
        let known = read(journal.descriptor().unwrap()).unwrap();
        assert_eq!(known.clients[&4].1[&generation], 2);
    }

    #[test]
    fn what_was_given_up_is_known_once() {
        let mut journal = Journal::create().unwrap();
        journal.begin(0, 1);
        let generation = Generation([3; 16]);
        let mut item = crate::keeper::entries::tests::export(generation, vec![2, 2, 2]);
        journal.add(&Record::Item(Box::new(item.clone())));
        journal.add(&Record::GaveUp(generation, 1));
        // An item is written as it is at the end of a turn.
        item.give_up(1);
        item.give_up(0);
        journal.add(&Record::Item(Box::new(item.clone())));
        journal.add(&Record::GaveUp(generation, 0));
        journal.write().unwrap();
        let known = read(journal.descriptor().unwrap()).unwrap();
        assert_eq!(known.items[&generation], item);
        assert_eq!(item.mapped, 2);
    }

    #[test]
    fn another_form_is_refused() {
        let mut journal = Journal::create().unwrap();
        assert!(read(journal.descriptor().unwrap()).is_err());
        journal.add(&Record::Begin {
            format: 77,
            restarts: 0,
            next_client: 0,
        });
        journal.write().unwrap();
        let read = read(journal.descriptor().unwrap());
        assert!(matches!(read, Err(Unreadable::Form(77))), "{read:?}");
    }
}
