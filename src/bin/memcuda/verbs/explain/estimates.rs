//! What the pool would have held of a trace, by replays under the settings that are
//! asked about, and the least limit under which it fits. Estimates: none of it ran on
//! a GPU.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, anyhow};
use memcuda::error::Error;
use memcuda::trace::fit::{self, Setting};
use memcuda::trace::replay::{Failure, Outcome};
use memcuda::units::{GIB, MIB, show_bytes};

use super::Arguments;
use crate::output::Table;
use crate::verbs::trace::open;

/// What replays say.
pub struct Estimates {
    /// Setting in words, and what the pool would have held; `None`: a request
    /// would have been refused.
    pub rows: Vec<(String, Option<Outcome>)>,
    /// Would it fit?
    pub fit: Option<Fit>,
    /// Is memcuda asked, so that there are hits and handles?
    asks_memcuda: bool,
}

/// The answer to `--would-fit`, of which all is about each device.
pub struct Fit {
    /// The limit that is asked about, in bytes.
    pub asked: u64,
    /// What was held under it; `None`: a request would have been refused.
    pub outcome: Option<Outcome>,
    /// The least limit in bytes, about.
    pub least: u64,
}

impl Estimates {
    /// Plays a trace under what the arguments ask about.
    ///
    /// # Errors
    /// A trace that cannot be read, a request that the pool answers with anything but memory.
    pub fn of(path: &Path, arguments: &Arguments) -> Result<Self> {
        let plain = Setting {
            profile: arguments.profile(),
            chunk: None,
            limit: None,
        };
        let asked = Setting {
            chunk: arguments.chunk,
            limit: arguments.limit,
            ..plain
        };
        let play = |setting| fit::play(|| open(path), setting).map_err(|e| failed(path, e));
        let mut rows = vec![("as the pool chooses".to_owned(), play(plain)?)];
        if arguments.chunk.is_some() || arguments.limit.is_some() {
            let chunk = asked
                .chunk
                .map(|bytes| format!("handles of {}", show_bytes(bytes)));
            let limit = asked
                .limit
                .map(|bytes| format!("a limit of {}", show_bytes(bytes)));
            let words: Vec<String> = chunk.into_iter().chain(limit).collect();
            rows.push((words.join(", "), play(asked)?));
        }
        // With these handles, where nothing is in the way.
        let unlimited = || match asked {
            Setting { chunk: None, .. } => Ok(rows[0].1),
            Setting { limit: None, .. } => Ok(rows[1].1),
            Setting { .. } => play(Setting {
                limit: None,
                ..asked
            }),
        };
        let fit = match arguments.would_fit {
            Some(bytes) => {
                let limit = Some(bytes);
                let outcome = play(Setting { limit, ..asked })?;
                // The two answers are of one mind.
                let (too_little, enough) = match outcome {
                    Some(_) => (0, outcome),
                    None => (bytes, unlimited()?),
                };
                let between = enough.map(|enough| (too_little, enough.device_peak_bytes));
                let least = between.map(|between| fit::least(|| open(path), asked, between));
                let least = least.transpose().map_err(|e| failed(path, e))?;
                least.map(|least| Fit {
                    asked: bytes,
                    outcome,
                    least,
                })
            }
            None => None,
        };
        Ok(Self {
            rows,
            fit,
            asks_memcuda: arguments.profile().asks_memcuda(),
        })
    }

    /// In words; with `pages` the trace has torch's.
    ///
    /// # Errors
    /// None: a string takes all.
    pub fn describe(&self, text: &mut String, pages: bool) -> std::fmt::Result {
        *text +=
            "\nEstimates: the same requests, played against the pool over a model of the driver\n";
        if pages {
            *text += "  (pages beside it, at the addresses at which torch mapped them)\n";
        }
        let devices = self.rows.iter().flat_map(|(_, outcome)| outcome);
        let devices = devices.map(|outcome| outcome.devices).max().unwrap_or(1);
        if devices > 1 {
            writeln!(
                text,
                "  (of {devices} devices together; a limit is that of each one)"
            )?;
        }
        let counted = |shown: String| match self.asks_memcuda {
            true => shown,
            false => "-".to_owned(),
        };
        let mut table = Table::new(&[
            "setting",
            "physical at most",
            "live / physical",
            "hits",
            "handles",
            "driver time",
        ]);
        for (setting, outcome) in &self.rows {
            table.row(match outcome {
                Some(o) => vec![
                    setting.clone(),
                    show_bytes(o.peak_physical_bytes),
                    format!("{:.1} %", 100.0 * o.efficiency()),
                    counted(format!("{:.1} %", 100.0 * o.hit_rate)),
                    counted(o.handles_mapped.to_string()),
                    counted(format!("{:.3} s", o.driver_time_s)),
                ],
                None => {
                    let mut row = vec![setting.clone(), "out of memory".to_owned()];
                    row.resize(6, String::new());
                    row
                }
            });
        }
        *text += &table.text("  ");
        let Some(fit) = &self.fit else { return Ok(()) };
        let (asked, least) = (in_mib(fit.asked), in_mib(fit.least));
        let each = if devices > 1 { " on each device" } else { "" };
        write!(
            text,
            "\nWould it fit in {asked}{each}? By this estimate it would"
        )?;
        match &fit.outcome {
            Some(outcome) => {
                let most = in_mib(outcome.device_peak_bytes);
                let one = if devices > 1 { " on one of them" } else { "" };
                write!(text, ": {most} at most{one} under a limit of {asked}.")?;
            }
            None => write!(text, " not: a request would be refused.")?,
        }
        writeln!(text, " The least limit is about {least}{each}.")?;
        writeln!(
            text,
            "This is about the pool (MEMCUDA_LIMIT). A device needs more: contexts, kernels and what libraries take beside it, often 0.5 GiB a process."
        )
    }
}

/// So that two limits differ which are a handle apart; what is no whole MiB nobody can use.
fn in_mib(bytes: u64) -> String {
    match bytes {
        less if less < MIB => show_bytes(less),
        gib if gib.is_multiple_of(GIB) => format!("{} GiB", gib / GIB),
        other => format!("{} MiB", other / MIB),
    }
}

fn failed(path: &Path, failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Trace(error) => Error::of_file(path, error).into(),
        Failure::Refused(line, code) => {
            let name = path.display();
            anyhow!("{name}: line {line}: the pool answered {code:?}")
        }
    }
}
