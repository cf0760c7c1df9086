//! Memory made for the keeper by a short-lived process of ours
//! (`memcuda keeper-allocate`), since the keeper has no driver: started,
//! waited for with a limit, ended where it takes longer.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::command::{Create, Device, Fault};
use crate::names::Name;
use crate::share::protocol::Entry;

/// Most bytes that are read of what it says.
const MOST_SAID: u64 = 4096;
/// What of our own surroundings would change what it does.
const REMOVED: [&str; 3] = ["LD_PRELOAD", "MEMCUDA_NAMES", "MEMCUDA_NAMES_FILE"];

/// How processes are started that make memory.
pub struct Allocator {
    /// The `memcuda` program.
    pub program: PathBuf,
    /// The keeper's socket.
    pub socket: String,
    /// How long one may take.
    pub patience: Duration,
}

impl Allocator {
    /// Makes memory under a name that stays.
    pub fn create(&self, create: &Create, device: u32) -> Result<(), (Fault, String)> {
        let mut command = self.command(&create.name);
        command.arg("--bytes").arg(create.bytes.to_string());
        if let Some(dtype) = create.dtype {
            command.arg("--dtype").arg(dtype.name());
        }
        // One element has no extents.
        if !create.shape.is_empty() {
            let shape = create.shape.iter().map(u64::to_string);
            command
                .arg("--shape")
                .arg(shape.collect::<Vec<_>>().join(","));
        }
        let device = create.device.clone().unwrap_or(Device::Ordinal(device));
        command.arg("--device").arg(device.to_string());
        if create.zero {
            command.arg("--zero");
        }
        self.run(command)
    }

    /// Makes a copy under a name that stays, on the same device.
    pub fn copy(
        &self,
        of: &Entry,
        source: &Name,
        name: &Name,
        device: Option<&Device>,
    ) -> Result<(), (Fault, String)> {
        let mut command = self.command(name);
        // In one word: a name may begin as an option does.
        command.arg(format!("--copy-of={source}"));
        command.arg("--bytes").arg(of.spec.bytes.to_string());
        if let Some(device) = device {
            command.arg("--device").arg(device.to_string());
        }
        self.run(command)
    }

    fn command(&self, name: &Name) -> Command {
        let mut command = Command::new(&self.program);
        for variable in REMOVED {
            command.env_remove(variable);
        }
        command.arg("keeper-allocate").arg(format!("--name={name}"));
        command.arg("--socket").arg(&self.socket);
        command.arg("--keeper").arg(std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        command
    }

    fn run(&self, mut command: Command) -> Result<(), (Fault, String)> {
        let failed = |why: String| (Fault::Unavailable, why);
        let until = Instant::now() + self.patience;
        let mut process = command
            .spawn()
            .map_err(|error| failed(format!("the allocator cannot be started: {error}")))?;
        let said = listen(&mut process, until);
        if said.is_none() {
            // It is ours, and nobody has waited for it: the number is its own.
            let _ = process.kill();
        }
        let status = process.wait();
        let Some(said) = said else {
            let seconds = self.patience.as_secs_f32();
            let why = format!("the driver did not make the memory within {seconds} s");
            return Err((Fault::Timeout, why));
        };
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(understand(&said).unwrap_or_else(|| {
                (
                    Fault::AllocationFailed,
                    format!("the allocator ended: {status}"),
                )
            })),
            Err(error) => Err(failed(format!(
                "the allocator cannot be waited for: {error}"
            ))),
        }
    }
}

/// What it says until it ends; `None` where it takes too long.
fn listen(process: &mut Child, until: Instant) -> Option<Vec<u8>> {
    let mut said = Vec::new();
    let Some(output) = process.stdout.take() else {
        return Some(said);
    };
    let mut output = output.take(MOST_SAID);
    loop {
        let left = until.checked_duration_since(Instant::now())?;
        let left = Timespec::try_from(left).ok()?;
        let pipe = output.get_ref().as_fd();
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Some(said),
        }
        let mut some = [0; 512];
        match output.read(&mut some) {
            Ok(0) | Err(_) => return Some(said),
            Ok(bytes) => said.extend_from_slice(&some[..bytes]),
        }
    }
}

/// `{"code":...,"message":...}`.
fn understand(said: &[u8]) -> Option<(Fault, String)> {
    let said: Value = serde_json::from_slice(said).ok()?;
    let fault = Fault::of(said.get("code")?.as_str()?)?;
    Some((fault, said.get("message")?.as_str()?.to_owned()))
}
