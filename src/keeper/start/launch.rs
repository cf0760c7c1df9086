//! How another process of the keeper is started: the program at the same path,
//! which may be a newer one by now, with the same arguments and a role.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a process of the keeper is to be. Each gets a socket to the other as
/// its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Holds the keeper's descriptors.
    Standby,
    /// Takes them over.
    Successor,
}

/// Program and arguments, without a role.
pub struct Launch {
    /// Where the program was when this process started.
    pub program: PathBuf,
    /// All arguments but the role.
    pub arguments: Vec<OsString>,
    /// Does it write to nobody's terminal?
    pub quiet: bool,
}

impl Launch {
    /// Starts a process with this socket. It is none of the terminal's.
    pub fn start(&self, role: Role, socket: OwnedFd) -> std::io::Result<Child> {
        let again = socket.try_clone()?;
        let mut command = self.command(&self.program, role, socket);
        // The program may be gone from its place.
        let started = command.process_group(0).spawn();
        started.or_else(|_| self.start_own(role, again))
    }

    /// The same with the program that this process is, whatever has come to its
    /// place.
    pub fn start_own(&self, role: Role, socket: OwnedFd) -> std::io::Result<Child> {
        let mut command = self.command(Path::new("/proc/self/exe"), role, socket);
        command.process_group(0).spawn()
    }

    /// Becomes the successor; returns only where that failed.
    pub fn become_successor(&self, socket: OwnedFd) -> std::io::Error {
        self.command(&self.program, Role::Successor, socket).exec()
    }

    fn command(&self, program: &Path, role: Role, socket: OwnedFd) -> Command {
        let role = match role {
            Role::Standby => "standby",
            Role::Successor => "successor",
        };
        let mut command = Command::new(program);
        command
            .args(&self.arguments)
            .args(["--role", role])
            .stdin(socket);
        if self.quiet {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        command
    }
}
