//! `memcuda keeper`: the process that keeps named and exported memory. Without
//! `--foreground` it goes into the background and the command ends as soon as it
//! serves. What one asks of it is in `keeper_ask`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use memcuda::config::{Config, Keeper};
use memcuda::driver::children;
use memcuda::keeper::redis::{self, Server};
use memcuda::keeper::{self, Launch, Options, Part, registry};
use memcuda::share::place;

use crate::names::reach;
use crate::verbs::keeper_ask::{self, Action};
use crate::{accepted, file_limit};

/// How long memory may take that Redis's queue asks for.
const ALLOCATION: Duration = Duration::from_secs(30);
/// What systemd tells a service of.
const SERVICE: [&str; 5] = [
    "NOTIFY_SOCKET",
    "FDSTORE",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];
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
    /// For programs, which start one whether or not its log can be opened
    #[arg(long, hide = true)]
    for_program: bool,
    /// For the keeper's own processes
    #[arg(long, hide = true)]
    role: Option<Role>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Daemon,
    Standby,
    Successor,
}

impl Arguments {
    /// Is it to serve, with nothing yet that would be lost if it did not begin?
    pub fn is_first(&self) -> bool {
        self.action.is_none() && matches!(self.role, None | Some(Role::Daemon))
    }

    /// Does it not begin where its log cannot be opened? Nobody hears why one that a
    /// program starts does not, and the program would be without what it shares.
    pub fn needs_log(&self) -> bool {
        self.is_first() && !self.for_program
    }
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(action) = &arguments.action {
        // Other settings are the keeper's own.
        let keeper = match arguments.socket {
            Some(_) => Keeper::Auto,
            None => reach::setting("MEMCUDA_KEEPER")?.keeper,
        };
        keeper_ask::ask(action, &socket(arguments, &keeper)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = Config::read(|name| std::env::var_os(name))?;
    let socket = socket(arguments, &config.keeper)?;
    children::can_be_waited_for();
    match arguments.role {
        None if !arguments.foreground => return in_background(arguments, &config, &socket),
        role => be(arguments, &config, socket, role)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn socket(arguments: &Arguments, keeper: &Keeper) -> Result<PathBuf> {
    let socket = match (&arguments.socket, keeper) {
        (Some(socket), _) => socket.clone(),
        (None, Keeper::Socket(socket)) => socket.clone(),
        (None, Keeper::Auto | Keeper::Off) => {
            let uid = rustix::process::geteuid().as_raw();
            place::directory(uid, |name| std::env::var(name).ok()).join(place::SOCKET)
        }
    };
    let shown = || format!("{} is no path", socket.display());
    let socket = std::path::absolute(&socket).with_context(shown)?;
    place::fits(&socket)?;
    Ok(socket)
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

/// Where this program is, or by now a newer one.
fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where is this program?")?;
    // So the kernel calls one in whose place another one is.
    let path = program.as_os_str().as_bytes();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    Ok(OsStr::from_bytes(path).into())
}

/// Is one of the keeper's processes.
fn be(arguments: &Arguments, config: &Config, socket: PathBuf, role: Option<Role>) -> Result<()> {
    file_limit::raise();
    if role == Some(Role::Daemon) {
        rustix::process::setsid().context("cannot leave the terminal")?;
        std::env::set_current_dir("/").context("cannot leave the directory")?;
    }
    let idle = match (arguments.idle, arguments.foreground) {
        (None, true) => None,
        (idle, _) => Some(Duration::from_secs(idle.unwrap_or(10))),
    };
    let launch = Launch {
        program: program()?,
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
    let end = keeper::run(options, part, |socket| {
        // Not before the signals are the keeper's own, which threads inherit.
        if let (Some(server), Some(registry)) = (redis, registry) {
            let socket = socket.to_owned();
            match redis::start(server, registry, redis::Settings { socket, ..settings }) {
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
fn in_background(arguments: &Arguments, config: &Config, socket: &Path) -> Result<ExitCode> {
    let (mut said, theirs) = std::io::pipe().context("no pipe")?;
    let mut command = Command::new(program()?);
    if let Some(log) = &config.log_file {
        // Its later processes begin in another directory.
        command.env("MEMCUDA_LOG_FILE", std::path::absolute(log)?);
    }
    // It is nobody's service, whoever starts it.
    for variable in SERVICE {
        command.env_remove(variable);
    }
    let for_program = arguments.for_program.then_some("--for-program");
    let mut child = command
        .args(same(arguments, socket)?)
        .args(["--role", "daemon"])
        .args(for_program)
        .stdin(Stdio::null())
        .stderr(theirs.try_clone().context("no pipe")?)
        .stdout(theirs)
        .spawn()
        .context("cannot start the keeper")?;
    let mut text = String::new();
    // Its descriptors go with the command that was built for it.
    drop(command);
    said.read_to_string(&mut text)
        .context("the keeper does not speak")?;
    if text.lines().last() == Some("ready") {
        return Ok(ExitCode::SUCCESS);
    }
    // Its last words.
    let _ = std::io::stderr().write_all(text.as_bytes());
    let status = child.wait().context("the keeper is lost")?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| code.try_into().ok())
            .unwrap_or(1),
    ))
}
