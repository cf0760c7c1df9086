//! What the pool would have held of a trace, by replays under the settings that are
//! asked about, and the least limit under which it fits. Estimates: none of it ran on
//! a GPU.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, anyhow};
use memcuda::error::Error;
use memcuda::trace::fit::{self, Setting};
use memcuda::trace::replay::{Failure, Outcome};
use memcuda::units::show_bytes;

use super::Arguments;
use crate::output::Table;
use crate::trace::open;

/// What replays say.
pub struct Estimates {
    /// Setting in words, and what the pool would have held; `None`: a request
    /// would have been refused.
    pub rows: Vec<(String, Option<Outcome>)>,
    /// Would it fit?
    pub fit: Option<Fit>,
}

/// The answer to `--would-fit`.
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
        let fit = match (arguments.would_fit, &rows[0].1) {
            (Some(bytes), Some(unlimited)) => {
                let limit = Some(bytes);
                let least = fit::least(
                    || open(path),
                    Setting {
                        limit: None,
                        ..asked
                    },
                    unlimited,
                );
                Some(Fit {
                    asked: bytes,
                    outcome: play(Setting { limit, ..asked })?,
                    least: least.map_err(|e| failed(path, e))?,
                })
            }
            _ => None,
        };
        Ok(Self { rows, fit })
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
                    format!("{:.1} %", 100.0 * o.hit_rate),
                    o.handles_mapped.to_string(),
                    format!("{:.3} s", o.driver_time_s),
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
        let (asked, least) = (show_bytes(fit.asked), show_bytes(fit.least));
        match &fit.outcome {
            Some(outcome) => writeln!(
                text,
                "\nWould it fit in {asked}? By this estimate it would: {} at most under a limit of {asked}. The least limit is about {least}.",
                show_bytes(outcome.peak_physical_bytes)
            )?,
            None => writeln!(
                text,
                "\nWould it fit in {asked}? By this estimate it would not: a request would be refused. The least limit is about {least}."
            )?,
        }
        writeln!(
            text,
            "This is about the pool (MEMCUDA_LIMIT). A device needs more: contexts, kernels and what libraries take beside it, often 0.5 GiB a process."
        )
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
