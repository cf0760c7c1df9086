//! What the hash of a name says: the fields of the first design, and ours.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::share::handle::Handle;
use crate::share::protocol::{Backend, Entry, Persist, State};

/// What all entries of a keeper have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host and its boot, as in handles.
    pub node: u64,
    /// The keeper's process.
    pub keeper_pid: u32,
    /// Its socket.
    pub socket: String,
}

impl Place {
    /// The node as it is written in Redis.
    pub fn node_in_hex(&self) -> String {
        format!("{:016x}", self.node)
    }
}

/// The fields of an entry, in the order in which they are written.
pub fn fields(entry: &Entry, place: &Place) -> Vec<(&'static str, Value)> {
    let spec = &entry.spec;
    let seconds = |us: u64| json!(us / 1_000_000);
    vec![
        (
            "name",
            json!(entry.name.as_ref().map_or("", |n| n.as_str())),
        ),
        ("dtype", json!(spec.dtype.map_or("", |d| d.name()))),
        ("shape", json!(spec.shape)),
        ("device", json!(spec.ordinal)),
        ("bytes", json!(spec.bytes)),
        (
            "ipc_handle",
            json!(STANDARD.encode(ipc_handle(entry, place))),
        ),
        ("owner_pid", json!(owner(entry, place))),
        ("refcount", json!(entry.references)),
        ("ctime", seconds(entry.created_us)),
        ("mtime", seconds(entry.changed_us)),
        ("generation", json!(entry.generation.to_string())),
        ("node", json!(place.node_in_hex())),
        ("device_uuid", json!(spec.device.to_string())),
        ("state", json!(state(entry.state))),
        ("version", json!(entry.version)),
        ("read_only", json!(u8::from(entry.state == State::Sealed))),
        ("holders", holders(entry)),
        ("persist", persist(entry.persist)),
        ("backend", json!(spec.backend.word())),
        ("broker", json!(place.socket)),
    ]
}

/// As an object of JSON.
pub fn object(entry: &Entry, place: &Place) -> Map<String, Value> {
    let fields = fields(entry, place).into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A value as a field of a hash holds it: text bare, the rest as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// What the second protocol keeps at a tensor's own path.
pub fn path_text(entry: &Entry, place: &Place) -> String {
    let spec = &entry.spec;
    json!({
        "dtype": spec.dtype.map_or("", |d| d.name()),
        "shape": spec.shape,
        "byte_size": spec.bytes,
        "device": format!("gpu{}", spec.ordinal),
        "address": {
            "node": place.node_in_hex(),
            "type": "memcuda",
            "name": entry.name,
            "generation": entry.generation.to_string(),
            "broker": place.socket,
        },
        "ctime": entry.created_us / 1_000_000,
        "version": entry.version,
    })
    .to_string()
}

/// 64 bytes: the driver's own handle, or one that means nothing without the
/// keeper's consent.
fn ipc_handle(entry: &Entry, place: &Place) -> Vec<u8> {
    match entry.spec.backend {
        Backend::CudaIpc => entry.legacy.clone(),
        Backend::Vmm => Handle::of(place.node, entry).to_bytes().to_vec(),
    }
}

/// Who keeps the memory alive, for those who look whether that process is
/// there: its maker while it holds it, and where it needs it; else the keeper.
fn owner(entry: &Entry, place: &Place) -> u32 {
    let holds = |pid| entry.holders.iter().any(|h| h.process.pid == pid);
    match entry.spec.backend {
        Backend::Vmm if !holds(entry.maker.pid) => place.keeper_pid,
        _ => entry.maker.pid,
    }
}

fn holders(entry: &Entry) -> Value {
    let holder = entry.holders.iter().map(|holder| {
        let process = &holder.process;
        json!({
            "pid": process.pid,
            "started": process.started,
            "uid": process.uid,
            "command": process.command,
            "count": holder.count,
        })
    });
    Value::Array(holder.collect())
}

fn persist(persist: Persist) -> Value {
    match persist {
        Persist::No => json!("no"),
        Persist::Yes => json!("yes"),
        Persist::Until(second) => json!(second),
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Creating => "creating",
        State::Ready => "ready",
        State::Sealed => "sealed",
        State::Dying => "dying",
    }
}
