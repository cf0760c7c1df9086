//! How an entry of the keeper is shown: as a JSON object, and in words. Knows
//! of one entry at a time.

use base64::prelude::{BASE64_STANDARD as STANDARD, Engine};
use memcuda::names::Pattern;
use memcuda::share::protocol::{Entry, Holder, Persist, Process, State};
use memcuda::units::show_bytes;
use serde::Serialize;

/// A process in JSON.
#[derive(Serialize)]
pub struct Maker {
    pid: u32,
    uid: u32,
    gid: u32,
    command: String,
}

impl Maker {
    fn of(process: &Process) -> Self {
        Self {
            pid: process.pid,
            uid: process.uid,
            gid: process.gid,
            command: process.command.clone(),
        }
    }
}

/// A process that holds memory, in JSON.
#[derive(Serialize)]
pub struct Held {
    #[serde(flatten)]
    process: Maker,
    references: u32,
}

/// An entry in JSON. `null` is unknown, or not said.
#[derive(Serialize)]
pub struct Object<'a> {
    name: Option<&'a str>,
    generation: String,
    state: &'static str,
    version: u64,
    dtype: Option<&'static str>,
    shape: Option<&'a [u64]>,
    requested_bytes: u64,
    mapped_bytes: u64,
    device: u32,
    device_uuid: String,
    backend: &'static str,
    /// Of `cuda_ipc`: the 64 bytes for `cudaIpcOpenMemHandle`, in base64.
    ipc_handle: Option<String>,
    persist: bool,
    persist_until_s: Option<u64>,
    references: u64,
    /// The first 16 of them.
    holders: Vec<Held>,
    maker: Maker,
    created_us: u64,
    changed_us: u64,
    age_s: u64,
}

impl<'a> Object<'a> {
    pub fn new(entry: &'a Entry, now_us: u64) -> Self {
        let spec = &entry.spec;
        let held = |holder: &Holder| Held {
            process: Maker::of(&holder.process),
            references: holder.count,
        };
        // Without extents it is a single element, if it is as large as one.
        let single = spec.dtype.is_some_and(|it| it.bytes() == spec.bytes);
        let shape = (single || !spec.shape.is_empty()).then_some(&spec.shape[..]);
        Self {
            name: entry.name.as_ref().map(|name| name.as_str()),
            generation: entry.generation.to_string(),
            state: state(entry),
            version: entry.version,
            dtype: spec.dtype.map(|dtype| dtype.name()),
            shape,
            requested_bytes: spec.bytes,
            mapped_bytes: entry.mapped,
            device: spec.ordinal,
            device_uuid: spec.device.to_string(),
            backend: spec.backend.word(),
            ipc_handle: (!entry.legacy.is_empty()).then(|| STANDARD.encode(&entry.legacy)),
            persist: entry.persist != Persist::No,
            persist_until_s: match entry.persist {
                Persist::Until(second) => Some(second),
                _ => None,
            },
            references: entry.references,
            holders: entry.holders.iter().map(held).collect(),
            maker: Maker::of(&entry.maker),
            created_us: entry.created_us,
            changed_us: entry.changed_us,
            age_s: seconds_since(entry.created_us, now_us),
        }
    }

    /// The same for who may see it, and not have the memory that a handle opens.
    pub fn without_handle(self) -> Self {
        Self {
            ipc_handle: None,
            ..self
        }
    }

    /// The same of an entry that is there no more.
    pub fn gone(entry: &'a Entry, now_us: u64) -> Self {
        Self {
            state: "gone",
            ..Self::new(entry, now_us)
        }
    }
}

/// Whole seconds between two microseconds of the Unix epoch.
pub fn seconds_since(then_us: u64, now_us: u64) -> u64 {
    now_us.saturating_sub(then_us) / 1_000_000
}

/// A time for people: `5s`, `3m`, `7h`, `2d`.
pub fn show_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// How long its memory stays.
pub fn lives(persist: Persist, now_us: u64) -> String {
    match persist {
        Persist::No => "while somebody holds it".to_owned(),
        Persist::Yes => "until it is deleted".to_owned(),
        Persist::Until(second) => match second.saturating_mul(1_000_000).saturating_sub(now_us) {
            0 => "while somebody holds it: its time is over".to_owned(),
            left => format!(
                "for {} more, then while held",
                show_seconds(left / 1_000_000)
            ),
        },
    }
}

/// Where in its life, in a word.
pub fn state(entry: &Entry) -> &'static str {
    match entry.state {
        State::Creating => "creating",
        State::Ready => "ready",
        State::Sealed => "sealed",
        State::Dying => "deleted",
    }
}

/// Names as people choose some of all: no pattern is all of them.
pub fn is_chosen(name: Option<&str>, by: &[Pattern]) -> bool {
    by.is_empty() || name.is_some_and(|name| by.iter().any(|it| it.holds(name)))
}

/// One of these patterns, from the command line.
pub fn pattern(text: &str) -> Result<Pattern, &'static str> {
    Pattern::new(text)
        .ok_or("it is empty; accepted: a name, with * for any text and ? for a character")
}

/// Its name; of an unnamed export the beginning of its generation.
pub fn title(entry: &Entry) -> String {
    match &entry.name {
        Some(name) => name.to_string(),
        None => format!("(ipc {:.8})", entry.generation.to_string()),
    }
}

/// Dtype and shape, `-` where nobody said.
pub fn elements(dtype: Option<&str>, shape: &[u64]) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    let dtype = dtype.unwrap_or("-");
    match extents.is_empty() {
        true => dtype.to_owned(),
        false => format!("{dtype} {}", extents.join("x")),
    }
}

/// The same of an entry.
pub fn elements_of(entry: &Entry) -> String {
    elements(entry.spec.dtype.map(|it| it.name()), &entry.spec.shape)
}

/// A process in words. What it calls itself may hold anything.
pub fn who(process: &Process) -> String {
    let command = crate::output::plain(&process.command);
    format!("{command} {}", process.pid).trim_start().to_owned()
}

/// Who holds it, in a few words; where nobody does, who made it.
pub fn held_by(entry: &Entry) -> String {
    match &entry.holders[..] {
        [] if entry.references == 0 => format!("nobody (by {})", who(&entry.maker)),
        [] => format!("{} times", entry.references),
        [holder] => who(&holder.process),
        // The list of holders ends at 16.
        holders if holders.len() == 16 => "16 or more".to_owned(),
        holders => format!("{} processes", holders.len()),
    }
}

/// Its size, `4.0 MiB`.
pub fn size(entry: &Entry) -> String {
    show_bytes(entry.spec.bytes)
}

#[cfg(test)]
mod tests {
    use super::show_seconds;

    #[test]
    fn times_are_in_the_largest_unit_that_is_whole() {
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (3600, "1h"),
            (86_399, "23h"),
            (86_400, "1d"),
            (u64::MAX, "213503982334601d"),
        ] {
            assert_eq!(show_seconds(seconds), shown);
        }
    }
}
