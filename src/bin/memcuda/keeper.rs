//! `memcuda keeper`: the process that keeps named and exported memory, and what
//! one asks of it. Without `--foreground` it goes into the background and the
//! command ends as soon as it serves.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use memcuda::config::{Config, Keeper};
use memcuda::keeper::redis::{self, Server};
use memcuda::keeper::{self, Launch, Options, Part, registry};
use memcuda::share::client::Client;
use memcuda::share::place;
use memcuda::share::protocol::{Reply, Request};
use serde::Serialize;

use crate::{accepted, output};

/// How long memory may take that Redis's queue asks for.
const ALLOCATION: Duration = Duration::from_secs(30);
/// How long a keeper may take that is asked for itself: it may be very busy, and who asks
/// sees that they wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long Redis may take to hear that the keeper ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Keep named and exported GPU memory; it is started by itself when needed.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// The socket; by default that of MEMCUDA_KEEPER, else the user's own
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Stay in this terminal, and stay when idle
    #[arg(long)]
    foreground: bool,
    /// Let this group come to the socket (what it may do is in the rules)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Access rules and quotas: a TOML file, read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// End after so long without clients and memory; by default 10 in the background
    #[arg(long, value_name = "SECONDS", value_parser = accepted::number::<u64>)]
    idle: Option<u64>,
    /// Wait awake so long for another request before sleeping, twenty times as
    /// long for the first one of a new process; 0 sleeps at once
    #[arg(long, value_name = "MICROSECONDS", default_value_t = keeper::AFTER_REQUEST.as_micros() as u64,
          value_parser = accepted::between(0_u64..=1_000_000))]
    awake: u64,
    /// For the keeper's own processes
    #[arg(long, hide = true)]
    role: Option<Role>,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Say how the keeper is
    Status {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// End the keeper
    Stop {
        /// Also with memory in its keeping, which is lost for who has not opened it
        #[arg(long)]
        force: bool,
    },
    /// Start the keeper's program anew, after an upgrade, with all that it keeps
    Restart,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Daemon,
    Standby,
    Successor,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let config = Config::read(|name| std::env::var_os(name))?;
    let socket = socket(arguments, &config)?;
    match (&arguments.action, arguments.role) {
        (Some(action), _) => ask(action, &socket)?,
        (None, None) if !arguments.foreground => return in_background(arguments, &socket),
        (None, role) => be(arguments, &config, socket, role)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn socket(arguments: &Arguments, config: &Config) -> Result<PathBuf> {
    let socket = match (&arguments.socket, &config.keeper) {
        (Some(socket), _) => socket.clone(),
        (None, Keeper::Socket(socket)) => socket.clone(),
        (None, Keeper::Auto | Keeper::Off) => {
            let uid = rustix::process::geteuid().as_raw();
            place::directory(uid, |name| std::env::var(name).ok()).join(place::SOCKET)
        }
    };
    std::path::absolute(&socket).with_context(|| format!("{} is no path", socket.display()))
}

/// The arguments of another process of the same keeper, without a role.
fn same(arguments: &Arguments, socket: &Path) -> Result<Vec<OsString>> {
    let mut same: Vec<OsString> = vec!["keeper".into(), "--socket".into(), socket.into()];
    if arguments.foreground {
        same.push("--foreground".into());
    }
    if let Some(group) = &arguments.group {
        same.extend(["--group".into(), group.into()]);
    }
    if let Some(rules) = &arguments.rules {
        same.extend(["--rules".into(), std::path::absolute(rules)?.into()]);
    }
    if let Some(idle) = arguments.idle {
        same.extend(["--idle".into(), idle.to_string().into()]);
    }
    same.extend(["--awake".into(), arguments.awake.to_string().into()]);
    Ok(same)
}

/// Is one of the keeper's processes.
fn be(arguments: &Arguments, config: &Config, socket: PathBuf, role: Option<Role>) -> Result<()> {
    if role == Some(Role::Daemon) {
        rustix::process::setsid().context("cannot leave the terminal")?;
        std::env::set_current_dir("/").context("cannot leave the directory")?;
    }
    let idle = match (arguments.idle, arguments.foreground) {
        (None, true) => None,
        (idle, _) => Some(Duration::from_secs(idle.unwrap_or(10))),
    };
    let launch = Launch {
        program: std::env::current_exe().context("where is this program?")?,
        arguments: same(arguments, &socket)?,
        quiet: !arguments.foreground,
    };
    if role == Some(Role::Standby) {
        return keeper::stand_by(&launch);
    }
    let redis = config.redis.as_deref().map(Server::new).transpose()?;
    let (desk, registry) = match redis {
        Some(_) => registry::pair().map(|(desk, registry)| (Some(desk), Some(registry)))?,
        None => (None, None),
    };
    let settings = redis::Settings {
        namespace: config.namespace.clone(),
        node: keeper::node().context("cannot read the boot's number")?,
        socket: socket.clone(),
        // This very program, whatever is at its place by now.
        program: PathBuf::from("/proc/self/exe"),
        patience: ALLOCATION,
    };
    let options = Options {
        socket,
        group: arguments.group.clone(),
        rules: arguments.rules.clone(),
        idle,
        awake: Duration::from_micros(arguments.awake),
        launch,
        desk,
    };
    let part = match role {
        Some(Role::Successor) => Part::Successor,
        _ => Part::First,
    };
    let mut threads = None;
    let end = keeper::run(options, part, || {
        // Not before the signals are the keeper's own, which threads inherit.
        if let (Some(server), Some(registry)) = (redis, registry) {
            match redis::start(server, registry, settings) {
                Ok(started) => threads = Some(started),
                Err(error) => tracing::error!("names are not published: {error}"),
            }
        }
        if role == Some(Role::Daemon) {
            // Whoever started it reads this to the end.
            let _ = std::io::stdout().write_all(b"ready\n");
            let _ = std::io::stdout().flush();
            if let Ok(null) = File::options().write(true).open("/dev/null") {
                let _ = rustix::stdio::dup2_stdout(&null);
                let _ = rustix::stdio::dup2_stderr(&null);
            }
        }
    });
    if let Some(threads) = threads {
        threads.finish(FAREWELL);
    }
    end
}

/// Starts it in the background, and waits until it serves or says why not.
fn in_background(arguments: &Arguments, socket: &Path) -> Result<ExitCode> {
    let (mut said, theirs) = std::io::pipe().context("no pipe")?;
    let mut child = Command::new(std::env::current_exe().context("where is this program?")?)
        .args(same(arguments, socket)?)
        .args(["--role", "daemon"])
        .stdin(Stdio::null())
        .stderr(theirs.try_clone().context("no pipe")?)
        .stdout(theirs)
        .spawn()
        .context("cannot start the keeper")?;
    let mut text = String::new();
    // Its descriptor goes with the command that was built for it.
    said.read_to_string(&mut text)
        .context("the keeper does not speak")?;
    if text.lines().last() == Some("ready") {
        return Ok(ExitCode::SUCCESS);
    }
    eprint!("{text}");
    let status = child.wait().context("the keeper is lost")?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| code.try_into().ok())
            .unwrap_or(1),
    ))
}

#[derive(Serialize)]
struct Shown {
    pid: u32,
    standby_pid: u32,
    version: String,
    socket: String,
    up_s: u64,
    restarts: u32,
    names: u64,
    dying: u64,
    exports: u64,
    clients: u64,
    references: u64,
    held_bytes: u64,
    unheld_bytes: u64,
    redis: String,
}

/// Asks a keeper that runs.
fn ask(action: &Action, socket: &Path) -> Result<()> {
    let dialled = Client::dial(socket, std::process::id(), "memcuda", &[]);
    let connected = dialled.and_then(|dialled| {
        dialled.be_patient(PATIENCE)?;
        dialled.welcome()
    });
    let (mut client, _) =
        connected.map_err(|error| anyhow::anyhow!("{}: {error}", socket.display()))?;
    let request = match action {
        Action::Status { .. } => Request::Status,
        Action::Stop { force } => Request::Stop { force: *force },
        Action::Restart => Request::Restart,
    };
    let status = match (action, client.call(request, &[])) {
        (Action::Status { json }, Ok((Reply::Status(status), _))) => (status, *json),
        (Action::Stop { .. } | Action::Restart, Ok((Reply::Done, _))) => return Ok(()),
        (_, Ok(_)) => bail!("the keeper answers another question"),
        (_, Err(error)) => bail!("{error}"),
    };
    let (status, json) = status;
    let shown = Shown {
        pid: status.pid,
        standby_pid: status.standby,
        version: status.version,
        socket: status.socket,
        up_s: status.up_s,
        restarts: status.restarts,
        names: status.names,
        dying: status.dying,
        exports: status.exports,
        // Without the one that asks.
        clients: status.clients.saturating_sub(1),
        references: status.references,
        held_bytes: status.bytes,
        unheld_bytes: status.unheld_bytes,
        redis: status.redis,
    };
    match json {
        true => output::json("keeper", &shown),
        false => print(&shown),
    }
}

fn print(shown: &Shown) -> Result<()> {
    let mut table = output::Table::left(&["keeper", &shown.version]);
    let standby = match shown.standby_pid {
        0 => "none (systemd keeps the descriptors)".to_owned(),
        pid => pid.to_string(),
    };
    let redis = match &shown.redis[..] {
        "" => "none",
        state => state,
    };
    for (what, value) in [
        ("process", shown.pid.to_string()),
        ("standby", standby),
        ("socket", shown.socket.clone()),
        (
            "up",
            format!("{} s, started anew {} times", shown.up_s, shown.restarts),
        ),
        ("clients", shown.clients.to_string()),
        (
            "names",
            format!("{}, and {} deleted", shown.names, shown.dying),
        ),
        ("exports", shown.exports.to_string()),
        ("references", shown.references.to_string()),
        ("memory", output::bytes(Some(shown.held_bytes))),
        ("held by nobody", output::bytes(Some(shown.unheld_bytes))),
        ("redis", redis.to_owned()),
    ] {
        table.row(vec![what.to_owned(), value]);
    }
    table.print()
}
