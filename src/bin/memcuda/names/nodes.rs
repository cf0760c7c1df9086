//! `memcuda ls --all-nodes`: what the keepers of all hosts publish in Redis.
//! What is seen there can be opened on its own host only.

use std::io::Write;

use anyhow::{Result, anyhow};
use memcuda::epoch::now_us;
use memcuda::keeper::redis::{self, Listed, Node, Server};
use memcuda::names::Pattern;
use memcuda::units::show_bytes;
use serde::Serialize;

use crate::names::entry;
use crate::names::reach;
use crate::output::{self, Table, plain};

/// A name in JSON. `null` is unknown, or not said.
#[derive(Serialize)]
struct Object<'a> {
    namespace: &'a str,
    host: Option<&'a str>,
    node: &'a str,
    socket: &'a str,
    name: &'a str,
    generation: &'a str,
    state: &'a str,
    version: u64,
    dtype: Option<&'a str>,
    shape: Option<Vec<u64>>,
    requested_bytes: u64,
    device: u32,
    device_uuid: &'a str,
    backend: &'a str,
    persist: bool,
    persist_until_s: Option<u64>,
    references: u64,
    owner_pid: u32,
    created_s: u64,
    changed_s: u64,
}

impl<'a> Object<'a> {
    fn new(node: &'a Node, listed: &'a Listed) -> Self {
        Self {
            namespace: &node.namespace,
            host: said(&node.host),
            node: &node.node,
            socket: &node.socket,
            name: &listed.name,
            generation: &listed.generation,
            state: &listed.state,
            version: listed.version,
            dtype: said(&listed.dtype),
            shape: serde_json::from_str(&listed.shape).ok(),
            requested_bytes: listed.bytes,
            device: listed.device,
            device_uuid: &listed.device_uuid,
            backend: &listed.backend,
            persist: !matches!(&listed.persist[..], "" | "no"),
            persist_until_s: listed.persist.parse().ok(),
            references: listed.refcount,
            owner_pid: listed.owner_pid,
            created_s: listed.ctime,
            changed_s: listed.mtime,
        }
    }
}

fn said(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Lists those that are chosen, as JSON lines or as a table for each host.
pub fn list(names: &[Pattern], json: bool) -> Result<()> {
    let address = reach::setting("MEMCUDA_REDIS")?.redis;
    let address = address.ok_or_else(|| {
        memcuda::error::Error::new("--all-nodes asks Redis; set MEMCUDA_REDIS to its address")
    })?;
    let server = Server::new(&address)?;
    // Not bad input of the user's, so not the library's error.
    let mut nodes = redis::nodes(&server).map_err(|error| anyhow!("{error}"))?;
    if !names.is_empty() {
        for node in &mut nodes {
            node.entries
                .retain(|it| entry::is_chosen(Some(&it.name), names));
        }
        nodes.retain(|node| !node.entries.is_empty());
    }
    if json {
        let all = nodes.iter().flat_map(|node| {
            let entries = node.entries.iter();
            entries.map(move |listed| Object::new(node, listed))
        });
        return output::json_lines("ls", &all.collect::<Vec<_>>());
    }
    if nodes.is_empty() {
        output::line("no names are published there")?;
    }
    for (at, node) in nodes.iter().enumerate() {
        print(node, at == 0)?;
    }
    Ok(())
}

fn print(node: &Node, first: bool) -> Result<()> {
    let mut out = output::out();
    if !first {
        writeln!(out)?;
    }
    let namespace = match &node.namespace[..] {
        "" => "no namespace".to_owned(),
        namespace => format!("namespace {}", plain(namespace)),
    };
    match said(&node.host) {
        Some(host) => writeln!(out, "{}, {namespace}", plain(host))?,
        None => writeln!(out, "a host that is silent, {namespace}")?,
    }
    drop(out);
    let mut table = Table::left(&[
        "name",
        "size",
        "elements",
        "gpu",
        "state",
        "references",
        "age",
    ]);
    let now_s = now_us() / 1_000_000;
    for listed in &node.entries {
        let shape: Option<Vec<u64>> = serde_json::from_str(&listed.shape).ok();
        table.row(vec![
            plain(&listed.name),
            show_bytes(listed.bytes),
            plain(&entry::elements(
                said(&listed.dtype),
                &shape.unwrap_or_default(),
            )),
            listed.device.to_string(),
            plain(&listed.state),
            listed.refcount.to_string(),
            entry::show_seconds(now_s.saturating_sub(listed.ctime)),
        ]);
    }
    table.shrink(output::terminal().0, &[(0, 15), (2, 11)]);
    table.print()
}
