//! Every `MEMCUDA_*` variable, in one table: name, accepted values, meaning,
//! parser. Reads the environment through a lookup that the caller passes;
//! never changes it. Values are bytes, since paths need not be UTF-8.

mod parse;
mod redis;
mod values;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::units::accepted;
use parse::choose;
pub use values::{Debug, Deepbind, Free, Idle, Keeper, Level, Policy, Stacks, Torch};

/// What is before the name of a variable by which `memcuda doctor` passes on what it was
/// before it set it for its program; empty where it was not set. A keeper that is started
/// goes by that.
pub const BEFORE_DOCTOR: &str = "MEMCUDA_DOCTOR_";

/// The settings of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `MEMCUDA_DISABLE`: do nothing at all.
    pub disable: bool,
    /// `MEMCUDA_POLICY`.
    pub policy: Policy,
    /// `MEMCUDA_TORCH`.
    pub torch: Torch,
    /// `MEMCUDA_FREE`.
    pub free: Free,
    /// `MEMCUDA_LIMIT`: most physical bytes, for every device (`None`) or one.
    pub limit: Vec<(Option<u32>, u64)>,
    /// `MEMCUDA_IDLE`: idle memory kept while others are on the device.
    pub idle: Idle,
    /// `MEMCUDA_CHUNK`: bytes of a physical handle; `None` lets the pool choose.
    pub chunk: Option<u64>,
    /// `MEMCUDA_DEBUG`.
    pub debug: Debug,
    /// `MEMCUDA_NAMES`: rules in a line, not yet read (`names::rules`).
    pub names: Option<String>,
    /// `MEMCUDA_NAMES_FILE`: a file of rules.
    pub names_file: Option<PathBuf>,
    /// `MEMCUDA_NAMESPACE`: of the keys in Redis; empty for none.
    pub namespace: String,
    /// `MEMCUDA_KEEPER`.
    pub keeper: Keeper,
    /// `MEMCUDA_REDIS`: where the keeper publishes names.
    pub redis: Option<String>,
    /// `MEMCUDA_TRACE`: the file to record to; `%p` in it stands for the process id.
    pub trace: Option<PathBuf>,
    /// `MEMCUDA_TRACE_STACKS`.
    pub trace_stacks: Stacks,
    /// `MEMCUDA_STATS`: keep the statistics page.
    pub stats: bool,
    /// `MEMCUDA_OOM_REPORT`: where a report goes when an allocation fails for
    /// lack of memory.
    pub oom_report: Option<PathBuf>,
    /// `MEMCUDA_LOG`.
    pub log: Level,
    /// `MEMCUDA_LOG_FILE`: a path; `None` is standard error.
    pub log_file: Option<PathBuf>,
    /// `MEMCUDA_LOG_FORMAT` is `json`.
    pub log_json: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            disable: false,
            policy: Policy::default(),
            torch: Torch::default(),
            free: Free::default(),
            limit: Vec::new(),
            idle: Idle::Percent(10.0),
            chunk: None,
            debug: Debug::default(),
            names: None,
            names_file: None,
            namespace: String::new(),
            keeper: Keeper::default(),
            redis: None,
            trace: None,
            trace_stacks: Stacks::default(),
            stats: true,
            oom_report: None,
            log: Level::default(),
            log_file: None,
            log_json: false,
        }
    }
}

/// One row of the table: a variable, what it accepts, what it means.
pub struct Variable {
    /// The variable's full name.
    pub name: &'static str,
    /// Accepted values, the default first.
    pub accepts: &'static str,
    /// One line for people.
    pub meaning: &'static str,
    set: fn(&mut Config, &OsStr) -> Option<()>,
}

/// All variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "MEMCUDA_DISABLE",
        accepts: "0, 1",
        meaning: "1: the shim does nothing at all",
        set: |c, v| choose(v, &[("0", false), ("1", true)]).map(|v| c.disable = v),
    },
    Variable {
        name: "MEMCUDA_POLICY",
        accepts: Policy::WORDS,
        meaning: "the pool; one handle per allocation (a baseline); the plain driver with bookkeeping",
        set: |c, v| Policy::of(v).map(|v| c.policy = v),
    },
    Variable {
        name: "MEMCUDA_TORCH",
        accepts: Torch::WORDS,
        meaning: "PyTorch profile; auto is native where that is proven safe, else keep; native is expandable where torch and machine are fit for it, else segments",
        set: |c, v| Torch::of(v).map(|v| c.torch = v),
    },
    Variable {
        name: "MEMCUDA_FREE",
        accepts: Free::WORDS,
        meaning: "may cudaFree return before the device is idle; auto: only for an identified torch",
        set: |c, v| Free::of(v).map(|v| c.free = v),
    },
    Variable {
        name: "MEMCUDA_LIMIT",
        accepts: "none, SIZE (2MiB or more), ORDINAL=SIZE,... (each device once)",
        meaning: "most physical memory that this process may hold",
        set: |c, v| parse::limit(v).map(|v| c.limit = v),
    },
    Variable {
        name: "MEMCUDA_IDLE",
        accepts: "10%, PERCENT, SIZE (0, or 2MiB or more)",
        meaning: "idle memory kept while another process is on the device, until a preloaded one needs it; alone, all of it is kept",
        set: |c, v| parse::idle(v).map(|v| c.idle = v),
    },
    Variable {
        name: "MEMCUDA_CHUNK",
        accepts: "auto, SIZE (a multiple of 2MiB, at most 1GiB)",
        meaning: "size of a physical handle; smaller ones where no whole one is left",
        set: |c, v| parse::chunk(v).map(|v| c.chunk = v),
    },
    Variable {
        name: "MEMCUDA_DEEPBIND",
        accepts: Deepbind::WORDS,
        meaning: "take RTLD_DEEPBIND out of the flags of dlopen; what is loaded with it bypasses the shim",
        // The shim reads it itself, before there are settings.
        set: |_, v| Deepbind::of(v).map(drop),
    },
    Variable {
        name: "MEMCUDA_DEBUG",
        accepts: Debug::WORDS,
        meaning: "fill on lending; guard words checked on free",
        set: |c, v| Debug::of(v).map(|v| c.debug = v),
    },
    Variable {
        name: "MEMCUDA_NAMES",
        accepts: "none, RULE; RULE; ...",
        meaning: "which allocations get a name (docs/names.md); a wrong rule is one line, and the program runs without names",
        set: |c, v| {
            let rules = v.to_str()?;
            c.names = (rules != "none").then(|| rules.to_owned());
            Some(())
        },
    },
    Variable {
        name: "MEMCUDA_NAMES_FILE",
        accepts: "none, PATH",
        meaning: "the same rules in a TOML file, behind those of MEMCUDA_NAMES",
        set: |c, v| {
            c.names_file = parse::path(v);
            Some(())
        },
    },
    Variable {
        name: "MEMCUDA_NAMESPACE",
        accepts: "unset, TEXT (up to 64 letters, digits and . _ - / + @ =; not tensor or memcuda)",
        meaning: "prefix of the keeper's keys and queues in Redis, so that several hosts share one",
        set: |c, v| parse::namespace(v).map(|v| c.namespace = v),
    },
    Variable {
        name: "MEMCUDA_KEEPER",
        accepts: "auto, off, SOCKET (an absolute path)",
        meaning: "who keeps named and exported memory: one that is started when first needed; nobody; the one there",
        set: |c, v| parse::keeper(v).map(|v| c.keeper = v),
    },
    Variable {
        name: "MEMCUDA_REDIS",
        accepts: "none, redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., redis+unix:///SOCKET",
        meaning: "where the keeper publishes names and takes commands",
        set: |c, v| parse::redis(v).map(|v| c.redis = v),
    },
    Variable {
        name: "MEMCUDA_TRACE",
        accepts: "none, FILE (%p is the process id), FOLDER/ (a file of its own for each process)",
        meaning: "record what is allocated and freed, for `memcuda explain` and `memcuda replay` (docs/traces.md)",
        set: |c, v| {
            c.trace = parse::path(v);
            Some(())
        },
    },
    Variable {
        name: "MEMCUDA_TRACE_STACKS",
        accepts: Stacks::WORDS,
        meaning: "with MEMCUDA_TRACE: what was called when memory was asked for; python: functions of Python, where there are any",
        set: |c, v| Stacks::of(v).map(|v| c.trace_stacks = v),
    },
    Variable {
        name: "MEMCUDA_STATS",
        accepts: "on, off",
        meaning: "the statistics page that `memcuda stat` reads",
        set: |c, v| choose(v, &[("on", true), ("off", false)]).map(|v| c.stats = v),
    },
    Variable {
        name: "MEMCUDA_OOM_REPORT",
        accepts: "none, DIRECTORY",
        meaning: "where a report is written when an allocation fails for lack of memory, for `memcuda explain` (docs/pictures.md)",
        set: |c, v| {
            // The program may go elsewhere before it fails.
            let absolute = parse::path(v).map(std::path::absolute);
            c.oom_report = absolute.transpose().ok()?;
            Some(())
        },
    },
    Variable {
        name: "MEMCUDA_LOG",
        accepts: "warn, off, error, info, debug",
        meaning: "least severity that is written",
        set: |c, v| Level::of(v).map(|v| c.log = v),
    },
    Variable {
        name: "MEMCUDA_LOG_FILE",
        accepts: "stderr, PATH",
        meaning: "where the log goes",
        set: |c, v| {
            c.log_file = (v != "stderr").then(|| v.into());
            Some(())
        },
    },
    Variable {
        name: "MEMCUDA_LOG_FORMAT",
        accepts: "text, json",
        meaning: "form of a log line",
        set: |c, v| choose(v, &[("text", false), ("json", true)]).map(|v| c.log_json = v),
    },
];

impl Variable {
    fn refuse(&self, value: &OsStr) -> Error {
        let shown = match self.name {
            "MEMCUDA_REDIS" => "MEMCUDA_REDIS (not shown: it may hold a password)".to_owned(),
            name => format!("{name}={}", value.display()),
        };
        let accepted = accepted(self.accepts);
        Error::new(format!("{shown} is not understood; {accepted}"))
    }
}

impl Config {
    /// Reads every variable through `lookup`; an empty one is as one that is not
    /// set. The first invalid value is the error: variable, value, what is accepted.
    pub fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let (config, wrong) = Self::read_all(lookup);
        wrong.into_iter().next().map_or(Ok(config), Err)
    }

    /// The same with all that is wrong; what is right is in the settings.
    pub fn read_all(lookup: impl Fn(&str) -> Option<OsString>) -> (Self, Vec<Error>) {
        let (mut config, mut wrong) = (Self::default(), Vec::new());
        for variable in VARIABLES {
            let Some(value) = lookup(variable.name) else {
                continue;
            };
            let trimmed = OsStr::from_bytes(value.as_bytes().trim_ascii());
            // What a shell or a template leaves of a variable that nobody filled in.
            if trimmed.is_empty() {
                continue;
            }
            if (variable.set)(&mut config, trimmed).is_none() {
                wrong.push(variable.refuse(&value));
            }
        }
        (config, wrong)
    }

    /// Is this the name of a variable of ours that nobody reads: misspelt, or of
    /// another version?
    pub fn is_unknown(name: &str) -> bool {
        // The simulated GPU's, doctor's, and where tests plant a panic.
        let others = ["MEMCUDA_SIM_", BEFORE_DOCTOR];
        let elsewhere = others.iter().any(|it| name.starts_with(it)) || name == "MEMCUDA_PANIC_IN";
        let known = VARIABLES.iter().any(|variable| variable.name == name);
        name.starts_with("MEMCUDA_") && !known && !elsewhere
    }

    /// What is to be said where variables are set that do nothing beside others, or
    /// without them.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let lends = self.policy != Policy::Track;
        let all = [
            (
                self.trace_stacks != Stacks::None && self.trace.is_none(),
                "MEMCUDA_TRACE_STACKS has no effect without MEMCUDA_TRACE",
            ),
            (
                !lends && !self.limit.is_empty(),
                "MEMCUDA_LIMIT has no effect with MEMCUDA_POLICY=track, which lends nothing",
            ),
            (
                !lends && self.names.is_some(),
                "MEMCUDA_NAMES has no effect with MEMCUDA_POLICY=track, which lends nothing",
            ),
            (
                !lends && self.names_file.is_some(),
                "MEMCUDA_NAMES_FILE has no effect with MEMCUDA_POLICY=track, which lends nothing",
            ),
        ];
        let unused = all.into_iter().filter(|(unused, _)| *unused);
        unused.map(|(_, line)| line).collect()
    }

    /// Most physical bytes that this process may hold on a device.
    pub fn limit_of(&self, ordinal: u32) -> Option<u64> {
        let own = self.limit.iter().find(|(d, _)| *d == Some(ordinal));
        let all = self.limit.iter().find(|(d, _)| d.is_none());
        own.or(all).map(|(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests;
