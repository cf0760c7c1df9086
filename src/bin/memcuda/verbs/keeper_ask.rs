//! `memcuda keeper status`, `stop` and `restart`: what is asked of a keeper that runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{Reply, Request, Status};
use serde::Serialize;

use crate::output;

/// How long a keeper may take that is asked for itself: it may be very busy, and who asks
/// sees that they wait.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Subcommand)]
pub enum Action {
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

/// Asks the keeper at this socket.
pub fn ask(action: &Action, socket: &Path) -> Result<()> {
    let mut client = connect(socket)?;
    match action {
        Action::Status { json } => show(status(&mut client)?, *json),
        Action::Stop { force } => done(&mut client, Request::Stop { force: *force }),
        Action::Restart => restart(client, socket),
    }
}

fn connect(socket: &Path) -> Result<Client> {
    let dialled = Client::dial(socket, std::process::id(), "memcuda", &[]);
    let connected = dialled.and_then(|mut dialled| {
        dialled.be_patient(PATIENCE);
        dialled.welcome()
    });
    let (client, _) = connected.map_err(|error| anyhow!("{}: {error}", socket.display()))?;
    Ok(client)
}

fn done(client: &mut Client, request: Request) -> Result<()> {
    match client.call(request, &[])? {
        (Reply::Done, _) => Ok(()),
        _ => bail!("the keeper answers another question"),
    }
}

fn status(client: &mut Client) -> Result<Status> {
    match client.call(Request::Status, &[])? {
        (Reply::Status(status), _) => Ok(status),
        _ => bail!("the keeper answers another question"),
    }
}

/// Starts it anew, and looks who serves then.
fn restart(mut client: Client, socket: &Path) -> Result<()> {
    let before = status(&mut client)?;
    done(&mut client, Request::Restart)?;
    // The connection ends with the program that has it.
    match client.call(Request::Status, &[]) {
        Err(Error::Lost) => {}
        _ => bail!("the keeper cannot start its program anew, and goes on; its log says why"),
    }
    let after = status(&mut connect(socket)?)?;
    // It becomes the new program; one that ended at once was followed by the standby's.
    if after.standby != 0 && after.pid != before.pid {
        bail!("the new program does not start: the one before goes on, with everything");
    }
    Ok(())
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

fn show(status: Status, json: bool) -> Result<()> {
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
