//! The log of the command, the keeper and the page: `tracing` with the lines of
//! `memcuda::log_line`, so that they and the preloaded library's are of one form.
//! Never where the answers of a verb go: those are its output, and why it failed.

use std::fmt::{self, Write};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use memcuda::config::{Config, Level};
use memcuda::epoch;
use memcuda::log_line::{self, Form, Head, Part};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Sets the log up by `MEMCUDA_LOG`, `MEMCUDA_LOG_FILE` and `MEMCUDA_LOG_FORMAT`.
/// A file that cannot be opened is an error to who `needs` it, since nobody looks at it;
/// the log of anybody else stays on standard error. What is wrong is said by this process
/// if it `says` so: a program's library says it again.
pub fn start(part: Part, needs: bool, says: bool) -> Result<()> {
    // Whether other variables are right is for those who read them.
    let read = |name: &str| {
        name.starts_with("MEMCUDA_LOG")
            .then(|| std::env::var_os(name))?
    };
    let (config, wrong) = Config::read_all(read);
    let opened = config.log_file.as_deref().map(|path| {
        let file = open(path);
        file.with_context(|| format!("cannot open the log {}", path.display()))
    });
    let (file, missing) = match opened.transpose() {
        Ok(file) => (file, None),
        Err(error) if needs => return Err(error),
        Err(error) => (None, Some(error)),
    };
    let lines = Lines {
        form: Form::of(config.log_json, file.is_some()),
        part,
    };
    let writer = match (file.map(Arc::new), part) {
        (Some(file), Part::Keeper) => BoxMakeWriter::new(move || Prompt(file.clone())),
        (None, Part::Keeper) => BoxMakeWriter::new(|| Prompt(io::stderr())),
        (Some(file), _) => BoxMakeWriter::new(file),
        (None, _) => BoxMakeWriter::new(io::stderr),
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .event_format(lines)
        // A line that cannot be written is lost, as the library's are.
        .log_internal_errors(false);
    tracing_subscriber::registry()
        .with(filter(config.log))
        .with(layer)
        .init();
    for error in wrong.iter().filter(|_| says) {
        tracing::warn!("{error}");
    }
    if let Some(error) = missing.filter(|_| says) {
        tracing::warn!("{error:#}; logging here");
    }
    Ok(())
}

/// As the library does: a pipe that nobody reads would be waited for here.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true);
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = options.custom_flags(flags).open(path)?;
    // Lines wait for who reads them, as on standard error.
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    }
}

/// The log of who serves others: a line that is not taken now is lost.
struct Prompt<T>(T);

impl<T: AsFd + io::Write> io::Write for Prompt<T> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut ready = [PollFd::new(&self.0, PollFlags::OUT)];
        match poll(&mut ready, Some(&Timespec::default())) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            _ => self.0.write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

struct Lines {
    form: Form,
    part: Part,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        let mut message = Message::default();
        event.record(&mut message);
        let head = Head {
            level,
            part: self.part,
            pid: std::process::id(),
            time: epoch::now(),
        };
        log_line::write(&mut out, self.form, &head, format_args!("{}", message.0))?;
        out.write_str(self.form.end())
    }
}

/// What an event says, and behind it its fields.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
