//! What clients ask of a keeper, and memory files for it.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use memcuda::names::Name;
use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{
    Backend, Code, DeviceId, Entry, Generation, Lease, MOST_PARTS, Mode, Persist, Reply, Request,
    Spec,
};
use rustix::fs::{MemfdFlags, memfd_create};

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn spec(bytes: u64) -> Spec {
    Spec {
        bytes,
        dtype: None,
        shape: Vec::new(),
        device: DeviceId(*b"0123456789abcdef"),
        ordinal: 0,
        backend: Backend::Vmm,
    }
}

/// Memory that begins with these bytes.
pub fn memory(content: &[u8], bytes: u64) -> OwnedFd {
    let file = File::from(memfd_create("memcuda-test", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(bytes).unwrap();
    (&file).write_all(content).unwrap();
    file.into()
}

/// Exports one page in as many parts as there may be.
pub fn export_in_parts(exporter: &mut Client, generation: Generation) {
    try_export_in_parts(exporter, generation).unwrap();
}

/// The same, where it may be refused.
pub fn try_export_in_parts(exporter: &mut Client, generation: Generation) -> Result<(), Error> {
    let page = memory(b"", 4096);
    let export = Request::Export {
        generation,
        spec: spec(4096 * MOST_PARTS as u64),
        offset: 0,
        parts: vec![4096; MOST_PARTS],
        total: MOST_PARTS as u32,
    };
    let many = vec![page.as_fd(); MOST_PARTS];
    exporter.call(export, &many).map(drop)
}

/// The first bytes of memory.
pub fn content(memory: OwnedFd, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    File::from(memory).read_exact_at(&mut content, 0).unwrap();
    content
}

pub fn open(text: &str, mode: Mode, bytes: u64) -> Request {
    Request::Open {
        name: name(text),
        mode,
        spec: spec(bytes),
        write: false,
        hidden: false,
    }
}

/// Makes a name of a page, with this content.
pub fn make(client: &mut Client, text: &str, bytes: &[u8]) -> Result<Generation, Error> {
    let generation = begin(client, text)?;
    commit(client, generation, bytes)?;
    Ok(generation)
}

/// Begins to make a name of a page.
pub fn begin(client: &mut Client, text: &str) -> Result<Generation, Error> {
    match client.call(open(text, Mode::Create, 4096), &[])? {
        (Reply::Make { generation }, _) => Ok(generation),
        (reply, _) => panic!("{reply:?}"),
    }
}

pub fn commit(client: &mut Client, generation: Generation, bytes: &[u8]) -> Result<(), Error> {
    let memory = memory(bytes, 4096);
    let (reply, _) = client.call(commit_of(generation, 4096), &[memory.as_fd()])?;
    assert_eq!(reply, Reply::Done);
    Ok(())
}

/// Says of so many bytes beside it that they are the memory of a name.
pub fn commit_of(generation: Generation, mapped: u64) -> Request {
    Request::Commit {
        generation,
        mapped,
        legacy: Vec::new(),
    }
}

pub fn delete(text: &str) -> Request {
    Request::Delete {
        name: name(text),
        generation: None,
    }
}

pub fn lease(generation: Generation, count: u32) -> Lease {
    Lease { generation, count }
}

/// Opens a name that is there.
pub fn attach(client: &mut Client, text: &str) -> Result<(Entry, OwnedFd), Error> {
    let (reply, beside) = client.call(open(text, Mode::Attach, 0), &[])?;
    let Reply::Memory {
        entry, total: 1, ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    let [memory] = <[OwnedFd; 1]>::try_from(beside).unwrap();
    Ok((entry, memory))
}

/// Opens a name, whose memory begins with this.
#[track_caller]
pub fn has(client: &mut Client, text: &str, bytes: &[u8]) {
    let (_, memory) = attach(client, text).unwrap();
    assert_eq!(content(memory, bytes.len()), bytes);
}

/// Exports 4096 bytes.
pub fn export(client: &mut Client, generation: Generation) {
    let export = Request::Export {
        generation,
        spec: spec(4096),
        offset: 0,
        parts: vec![4096],
        total: 1,
    };
    client.call(export, &[memory(b"", 4096).as_fd()]).unwrap();
}

pub fn release(client: &mut Client, generation: Generation) {
    let (reply, _) = client.call(Request::Release { generation }, &[]).unwrap();
    assert_eq!(reply, Reply::Done);
}

pub fn persist(client: &mut Client, text: &str, persist: Persist) {
    let name = name(text);
    let (reply, _) = client
        .call(Request::Persist { name, persist }, &[])
        .unwrap();
    assert_eq!(reply, Reply::Done);
}

/// The code of a refusal.
pub fn code<T>(result: Result<T, Error>) -> Code {
    match result {
        Err(Error::Refused(code, message)) => {
            assert!(!message.contains('\n') && message.len() < 400, "{message}");
            code
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Every entry, page by page.
pub fn list(client: &mut Client, all: bool) -> Vec<Entry> {
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let (reply, _) = client.call(Request::List { after, all }, &[]).unwrap();
        let Reply::Entries { entries, next } = reply else {
            panic!("{reply:?}");
        };
        listed.extend(entries);
        match next {
            Some(next) => after = Some(next),
            None => return listed,
        }
    }
}
