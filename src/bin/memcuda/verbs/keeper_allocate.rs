//! `memcuda keeper-allocate`: makes memory under a name for the keeper, which
//! has no driver, and ends. On failure one line of JSON on standard output says
//! why: a code of the command queue's answers, and a message.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use memcuda::driver::Code as DriverCode;
use memcuda::driver::allocate::{Allocator, Failed};
use memcuda::keeper::redis::{Fault, fault};
use memcuda::names::{Dtype, Name};
use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{
    Backend, Code, DeviceId, Entry, Generation, Mode, Persist, Reply, Request, Spec,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// Make memory for the keeper (started by the keeper).
#[derive(clap::Args)]
pub struct Arguments {
    /// The keeper's socket
    #[arg(long)]
    socket: PathBuf,
    /// The keeper's process, with which this one ends
    #[arg(long)]
    keeper: u32,
    /// The name
    #[arg(long, value_parser = |text: &str| Name::new(text))]
    name: Name,
    /// Its bytes
    #[arg(long)]
    bytes: u64,
    /// Type of an element
    #[arg(long)]
    dtype: Option<Dtype>,
    /// Extents
    #[arg(long, value_delimiter = ',')]
    shape: Vec<u64>,
    /// An ordinal or a UUID; without it the first, or that of the source
    #[arg(long)]
    device: Option<String>,
    /// Fill it with zeros
    #[arg(long)]
    zero: bool,
    /// Copy this name's bytes, dtype and shape
    #[arg(long, value_name = "NAME", value_parser = |text: &str| Name::new(text))]
    copy_of: Option<Name>,
}

type Refused = (Fault, String);

/// How long a name is waited for that another one makes.
const PATIENCE: Duration = Duration::from_secs(5);

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let Err((fault, message)) = allocate(arguments) else {
        return Ok(ExitCode::SUCCESS);
    };
    let said = serde_json::json!({"code": fault.text(), "message": message});
    // Where nobody reads it, the keeper that asked is gone.
    let _ = crate::output::line(said);
    Ok(ExitCode::FAILURE)
}

fn allocate(arguments: &Arguments) -> Result<(), Refused> {
    // A keeper after this one takes the command up again: what came of both
    // would be one too many. So nothing is done over another connection than one
    // to the keeper that asked.
    let mut keeper = connect(&arguments.socket)?;
    end_with(arguments.keeper)?;
    let driver = Allocator::open().map_err(|why| (Fault::AllocationFailed, why))?;
    let source = arguments.copy_of.as_ref();
    let source = source.map(|name| open(&mut keeper, name)).transpose()?;
    let of = source.as_ref().map(|(entry, _)| entry);
    let (ordinal, device) = find(&driver, arguments.device.as_deref(), of)?;
    let spec = Spec {
        bytes: of.map_or(arguments.bytes, |of| of.spec.bytes),
        dtype: of.map_or(arguments.dtype, |of| of.spec.dtype),
        shape: of.map_or_else(|| arguments.shape.clone(), |of| of.spec.shape.clone()),
        device,
        ordinal,
        backend: Backend::Vmm,
    };
    let bytes = spec.bytes;
    let generation = begin(&mut keeper, &arguments.name, spec)?;
    // Where this fails the lease ends with the connection, and the name with it.
    let memory = driver.make(ordinal, bytes).map_err(of_driver)?;
    if let Some((entry, parts)) = &source {
        let [part] = &parts[..] else {
            let why = "the source has more parts than one";
            return Err((Fault::Unavailable, why.to_owned()));
        };
        let from = driver.import(ordinal, entry.mapped, part.as_fd());
        let from = from.map_err(of_driver)?;
        memory.copy_from(&from, bytes).map_err(of_driver)?;
    } else if arguments.zero {
        memory.zero().map_err(of_driver)?;
    }
    let descriptor = memory.export().map_err(of_driver)?;
    let mapped = memory.mapped;
    let commit = Request::Commit {
        generation,
        mapped,
        legacy: Vec::new(),
    };
    keeper
        .call(commit, &[descriptor.as_fd()])
        .map_err(of_keeper)?;
    let persist = Request::Persist {
        name: arguments.name.clone(),
        persist: Persist::Yes,
    };
    keeper.call(persist, &[]).map_err(of_keeper)?;
    // Before the answer is given, not some time after this process ended.
    let release = Request::Release { generation };
    keeper.call(release, &[]).map_err(of_keeper)?;
    Ok(())
}

/// Ends this process with its parent, which is to be this one.
fn end_with(parent: u32) -> Result<(), Refused> {
    let failed = |why: String| (Fault::Unavailable, why);
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| failed(format!("cannot end with the keeper: {error}")))?;
    let now = rustix::process::getppid().map_or(0, |now| now.as_raw_nonzero().get() as u32);
    if now == parent && is_listened_to() {
        return Ok(());
    }
    Err(failed("the keeper that asked is gone".to_owned()))
}

/// Does anybody hear what this process says? A keeper that has become another program since
/// has the same number, and does not.
fn is_listened_to() -> bool {
    let output = std::io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let answered = poll(&mut polled, Some(&Timespec::default()));
    answered.is_err() || !polled[0].revents().contains(PollFlags::ERR)
}

fn connect(socket: &Path) -> Result<Client, Refused> {
    let pid = std::process::id();
    let (client, _) = Client::connect(socket, pid, "memcuda", &[]).map_err(of_keeper)?;
    Ok(client)
}

/// Opens the source of a copy.
fn open(keeper: &mut Client, name: &Name) -> Result<(Entry, Vec<std::os::fd::OwnedFd>), Refused> {
    let any = Spec {
        bytes: 0,
        dtype: None,
        shape: Vec::new(),
        device: DeviceId([0; 16]),
        ordinal: 0,
        backend: Backend::Vmm,
    };
    let request = Request::Open {
        name: name.clone(),
        mode: Mode::Attach,
        spec: any,
        write: false,
        hidden: false,
    };
    match keeper.call(request, &[]).map_err(of_keeper)? {
        (Reply::Memory { entry, .. }, parts) if entry.spec.backend == Backend::Vmm => {
            Ok((entry, parts))
        }
        _ => Err((Fault::Invalid, format!("{name} cannot be copied"))),
    }
}

/// Takes the name, to be filled by us.
fn begin(keeper: &mut Client, name: &Name, spec: Spec) -> Result<Generation, Refused> {
    let request = Request::Open {
        name: name.clone(),
        mode: Mode::Create,
        spec,
        write: true,
        hidden: false,
    };
    let begun = Instant::now();
    loop {
        match keeper.call(request.clone(), &[]) {
            Ok((Reply::Make { generation }, _)) => return Ok(generation),
            Ok(_) => return Err((Fault::Exists, format!("there is a {name} already"))),
            // Its maker may be about to end.
            Err(Error::Refused(Code::InProgress, _)) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(of_keeper(error)),
        }
    }
}

/// The ordinal and the UUID of the device.
fn find(
    driver: &Allocator,
    wanted: Option<&str>,
    source: Option<&Entry>,
) -> Result<(u32, DeviceId), Refused> {
    let count = driver.devices().map_err(of_driver)?;
    let uuid = |ordinal| driver.uuid(ordinal).map(DeviceId).map_err(of_driver);
    let by_uuid = |text: &str| {
        let mut found = None;
        for ordinal in 0..count {
            let device = uuid(ordinal)?;
            if device.to_string().eq_ignore_ascii_case(text) {
                found = Some((ordinal, device));
            }
        }
        let why = format!("there is no device {text} here; there are {count}");
        found.ok_or((Fault::Invalid, why))
    };
    let found = match (wanted, source) {
        (None, Some(source)) => by_uuid(&source.spec.device.to_string())?,
        (Some(text), _) if text.starts_with("GPU-") => by_uuid(text)?,
        (wanted, _) => match wanted.unwrap_or("0").parse() {
            Ok(ordinal) if ordinal < count => (ordinal, uuid(ordinal)?),
            _ => {
                let wanted = wanted.unwrap_or("0");
                let why = format!("there is no device {wanted} here; there are {count}");
                return Err((Fault::Invalid, why));
            }
        },
    };
    match source {
        Some(source) if source.spec.device != found.1 => {
            let why = "a copy is made on the device of its source only";
            Err((Fault::Invalid, why.to_owned()))
        }
        _ => Ok(found),
    }
}

fn of_driver(failed: Failed) -> Refused {
    let fault = match failed.1 {
        DriverCode::OUT_OF_MEMORY => Fault::GpuOom,
        _ => Fault::AllocationFailed,
    };
    (fault, failed.to_string())
}

fn of_keeper(error: Error) -> Refused {
    match error {
        Error::Refused(code, message) => (fault(code), message),
        error => (Fault::Unavailable, error.to_string()),
    }
}
