//! What all keepers publish at one server, for `memcuda ls --all-nodes`. Reads
//! only.

use std::collections::{BTreeSet, HashMap};

use redis::cmd;
use serde::Serialize;

use super::keys::{INDEX, Keys};
use super::link::{Link, Server};
use crate::error::{Error, Result};

/// One keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// What its keys begin with; empty for nothing.
    pub namespace: String,
    /// Its host; empty where it has not been heard of for a while, and its names
    /// may be gone.
    pub host: String,
    /// The host and its boot, as in handles, in hexadecimal.
    pub node: String,
    /// Its socket, on that host.
    pub socket: String,
    /// Its names, in order.
    pub entries: Vec<Listed>,
}

/// One name, as published.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Type of an element; empty where nobody said.
    pub dtype: String,
    /// Extents, as `[2,3]`.
    pub shape: String,
    /// Bytes.
    pub bytes: u64,
    /// The maker's ordinal of the device.
    pub device: u32,
    /// The device.
    pub device_uuid: String,
    /// `ready` or `sealed`.
    pub state: String,
    /// The newest version when it last changed otherwise.
    pub version: u64,
    /// How often it is held.
    pub refcount: u64,
    /// `yes`, `no`, or a second of the Unix epoch.
    pub persist: String,
    /// `vmm` or `cuda_ipc`.
    pub backend: String,
    /// Which allocation.
    pub generation: String,
    /// Who keeps it alive.
    pub owner_pid: u32,
    /// When it was made: seconds of the Unix epoch.
    pub ctime: u64,
    /// When it last changed.
    pub mtime: u64,
}

/// Most names in one go.
const BATCH: usize = 256;

/// All keepers that publish at a server, by their namespaces. Goes through all
/// of its keys: for people, not for programs in a loop.
pub fn nodes(server: &Server) -> Result<Vec<Node>> {
    let failed = |why: &dyn std::fmt::Display| Error::new(format!("{server}: {why}"));
    let mut link = server.connect().map_err(|why| failed(&why))?;
    let namespaces = namespaces(&mut link).map_err(|why| failed(&why))?;
    let read = |namespace| node(&mut link, namespace).map_err(|why| failed(&why));
    namespaces.into_iter().map(read).collect()
}

type Asked<T> = std::result::Result<T, super::link::Trouble>;

fn namespaces(link: &mut Link) -> Asked<BTreeSet<String>> {
    let (mut found, mut cursor) = (BTreeSet::new(), 0_u64);
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("*{INDEX}"));
        // What is called so and is no set is somebody else's.
        scan.arg("COUNT").arg(1000).arg("TYPE").arg("set");
        let (next, keys): (u64, Vec<Vec<u8>>) = link.ask(&scan)?;
        let keys = keys.into_iter().flat_map(String::from_utf8);
        found.extend(keys.filter_map(|key| {
            let namespace = key.strip_suffix(INDEX)?;
            match namespace.strip_suffix(':') {
                // A colon within is another key's that only ends like ours.
                Some(namespace) if !namespace.contains(':') => Some(namespace.to_owned()),
                Some(_) => None,
                None => namespace.is_empty().then(String::new),
            }
        }));
        match next {
            0 => return Ok(found),
            next => cursor = next,
        }
    }
}

fn node(link: &mut Link, namespace: String) -> Asked<Node> {
    let keys = Keys::new(&namespace);
    let owner = link.hashes([keys.owner()].into_iter())?;
    let owner = owner.into_iter().next().unwrap_or_default();
    let names: BTreeSet<Vec<u8>> = link.ask(cmd("SMEMBERS").arg(keys.index()))?;
    let names: Vec<String> = names.into_iter().flat_map(String::from_utf8).collect();
    let mut entries = Vec::with_capacity(names.len());
    for names in names.chunks(BATCH) {
        let hashes = names.iter().map(|name| format!("{}{name}", keys.hashes()));
        let hashes = link.hashes(hashes)?.into_iter();
        // A hash that went meanwhile is empty.
        entries.extend(hashes.filter(|hash| !hash.is_empty()).map(listed));
    }
    let said = |field: &str| owner.get(field).cloned().unwrap_or_default();
    Ok(Node {
        host: said("host"),
        node: said("node"),
        socket: said("socket"),
        namespace,
        entries,
    })
}

fn listed(mut hash: HashMap<String, String>) -> Listed {
    let mut take = |field: &str| hash.remove(field).unwrap_or_default();
    let number = |text: String| text.parse().unwrap_or(0);
    Listed {
        name: take("name"),
        dtype: take("dtype"),
        shape: take("shape"),
        bytes: number(take("bytes")),
        device: number(take("device")) as u32,
        device_uuid: take("device_uuid"),
        state: take("state"),
        version: number(take("version")),
        refcount: number(take("refcount")),
        persist: take("persist"),
        backend: take("backend"),
        generation: take("generation"),
        owner_pid: number(take("owner_pid")) as u32,
        ctime: number(take("ctime")),
        mtime: number(take("mtime")),
    }
}
