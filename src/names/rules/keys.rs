//! The keys of a rule and their values, whichever form they were written in.

use std::ops::RangeInclusive;

use super::{Facts, Rule, Template, What, When};
use crate::error::{Error, Result};
use crate::names::{Backend, MOST_EXTENTS, Mode, Pattern};
use crate::units::{accepted, parse_size};

/// A rule that is being read.
#[derive(Default)]
pub struct Draft {
    when: When,
    name: Option<Template>,
    what: What,
    said: Vec<&'static str>,
}

/// One key: its name, what it accepts, and how it is set.
struct Key {
    name: &'static str,
    accepts: &'static str,
    set: fn(&mut Draft, &str) -> Option<()>,
}

const KEYS: &[Key] = &[
    Key {
        name: "size",
        accepts: "SIZE, SIZE..SIZE, SIZE.., ..SIZE",
        set: |d, v| range(v, parse_size).map(|v| d.when.bytes = Some(v)),
    },
    Key {
        name: "nth",
        accepts: "NUMBER from 1, FIRST..LAST, FIRST..",
        set: |d, v| {
            let number = |text: &str| text.parse().ok().filter(|&n: &u64| n > 0);
            range(v, number).map(|v| d.when.nth = Some(v))
        },
    },
    Key {
        name: "device",
        accepts: "ORDINAL",
        set: |d, v| v.parse().ok().map(|v| d.when.device = Some(v)),
    },
    Key {
        name: "thread",
        accepts: "NAME, with * for any text and ? for a character",
        set: |d, v| Pattern::new(v).map(|v| d.when.thread = Some(v)),
    },
    Key {
        name: "library",
        accepts: "FILE, with * for any text and ? for a character",
        set: |d, v| Pattern::new(v).map(|v| d.when.library = Some(v)),
    },
    Key {
        name: "name",
        accepts: "TEXT with {pid} {rank} {device} {n}",
        set: |d, v| Template::new(v).map(|v| d.name = Some(v)),
    },
    Key {
        name: "dtype",
        accepts: "f64 f32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8 bool c64 c128",
        set: |d, v| v.parse().ok().map(|v| d.what.dtype = Some(v)),
    },
    Key {
        name: "shape",
        accepts: "up to 32 extents, as 1024x512",
        set: |d, v| shape(v).map(|v| d.what.shape = v),
    },
    Key {
        name: "mode",
        accepts: "create-or-attach, create, attach",
        set: |d, v| {
            let mode = match v {
                "create-or-attach" => Mode::CreateOrAttach,
                "create" => Mode::Create,
                "attach" => Mode::Attach,
                _ => return None,
            };
            d.what.mode = mode;
            Some(())
        },
    },
    Key {
        name: "read-only",
        accepts: "true, false",
        set: |d, v| flag(v).map(|v| d.what.read_only = v),
    },
    Key {
        name: "zeroed",
        accepts: "true, false",
        set: |d, v| flag(v).map(|v| d.what.zeroed = v),
    },
    Key {
        name: "persist",
        accepts: "true, false",
        set: |d, v| flag(v).map(|v| d.what.persist = v),
    },
    Key {
        name: "mismatch",
        accepts: "error, unnamed",
        set: |d, v| {
            let or_unnamed = match v {
                "error" => false,
                "unnamed" => true,
                _ => return None,
            };
            d.what.or_unnamed = or_unnamed;
            Some(())
        },
    },
    Key {
        name: "backend",
        accepts: "vmm, cuda_ipc",
        set: |d, v| {
            let all = [Backend::Vmm, Backend::CudaIpc];
            d.what.backend = all.into_iter().find(|it| it.word() == v)?;
            Some(())
        },
    },
    Key {
        name: "wait",
        accepts: "SECONDS, a whole number",
        set: |d, v| v.parse().ok().map(|v| d.what.wait_s = Some(v)),
    },
];

impl Draft {
    /// Takes one key with its value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            return Err(Error::new(format!(
                "\"{}\" is not known; accepted: {}",
                show(name),
                known.join(" ")
            )));
        };
        if self.said.contains(&key.name) {
            return Err(Error::new(format!("{name} is said twice")));
        }
        self.said.push(key.name);
        (key.set)(self, value).ok_or_else(|| {
            Error::new(format!(
                "{name}={} is not understood; {}",
                show(value),
                accepted(key.accepts)
            ))
        })
    }

    /// The rule, once everything was said.
    pub fn finish(self, facts: &Facts) -> Result<Rule> {
        Rule::new(self.when, self.name, self.what, facts)
    }
}

/// What somebody wrote, as it can be shown in a line.
pub fn show(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String = text.escape_debug().take(MOST).collect();
    if text.escape_debug().nth(MOST).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A shape as a line has it.
pub fn show_shape(shape: &[u64]) -> String {
    let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
    extents.join("x")
}

fn range(text: &str, value: impl Fn(&str) -> Option<u64>) -> Option<RangeInclusive<u64>> {
    let range = match text.split_once("..") {
        None => value(text).map(|v| v..=v)?,
        Some(("", "")) => return None,
        Some(("", last)) => 0..=value(last)?,
        Some((first, "")) => value(first)?..=u64::MAX,
        Some((first, last)) => value(first)?..=value(last)?,
    };
    (!range.is_empty() && *range.end() > 0).then_some(range)
}

fn shape(text: &str) -> Option<Vec<u64>> {
    let extent = |text: &str| text.parse().ok().filter(|&extent: &u64| extent > 0);
    let shape: Vec<u64> = text.split('x').map(extent).collect::<Option<_>>()?;
    (shape.len() <= MOST_EXTENTS).then_some(shape)
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}
