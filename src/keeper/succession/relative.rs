//! The other process of the keeper: its parent or its child. It is ended and waited for by
//! a descriptor, and where the system lends none by its number, as long as that is surely
//! its own: a child's until it was waited for, a parent's until it has ended.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, pidfd_send_signal, waitid,
};

use crate::keeper::clients::process;

/// One of them.
pub struct Relative {
    number: Option<Pid>,
    watch: Option<OwnedFd>,
}

impl Relative {
    /// By its number; 0 is nobody.
    pub fn of(pid: u32) -> Self {
        Self {
            number: process::pid(pid),
            watch: process::watch_pid(pid),
        }
    }

    /// At once, whatever it does.
    pub fn kill(&self) {
        match (&self.watch, self.number) {
            (Some(watch), _) => drop(pidfd_send_signal(watch, Signal::KILL)),
            (None, Some(number)) if getppid() == Some(number) || is_child(number) => {
                let _ = kill_process(number, Signal::KILL);
            }
            _ => {}
        }
    }

    /// Until it has ended. Where it is a child of this process it is not to stay a zombie;
    /// nobody else's is waited for.
    pub fn wait(&self) {
        let watch = self.watch.as_ref().map(|it| WaitId::PidFd(it.as_fd()));
        let number = self.number.map(WaitId::Pid);
        for which in watch.into_iter().chain(number) {
            let waited = retry_on_intr(|| waitid(which.clone(), WaitIdOptions::EXITED));
            // Linux 5.3 lends descriptors, and cannot wait by one.
            if !matches!(waited, Err(Errno::INVAL)) {
                return;
            }
        }
    }
}

/// Is it a child that was not waited for yet?
fn is_child(number: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(number), options).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_that_takes_its_time_is_waited_for() {
        let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
        Relative::of(child.id()).wait();
        assert!(child.wait().is_err());
    }

    #[test]
    fn a_child_is_ended_by_its_number_too_and_nobody_else_is() {
        let sleeps = || Command::new("sleep").arg("100").spawn().unwrap();
        let by_number = |pid| Relative {
            watch: None,
            ..Relative::of(pid)
        };
        let mut child = sleeps();
        by_number(child.id()).kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let mut waited_for = sleeps();
        let relative = by_number(waited_for.id());
        relative.kill();
        relative.wait();
        assert!(!is_child(relative.number.unwrap()) && waited_for.wait().is_err());
        // A child's child is neither; nor is nobody, who would be all of this group.
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 100 & echo $!; read _; kill $!"]);
        let mut shell = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let output = shell.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut said).unwrap();
        let of_another: u32 = said.trim().parse().unwrap();
        by_number(of_another).kill();
        by_number(of_another).wait();
        by_number(0).kill();
        drop(shell.stdin.take());
        // The shell found it to be ended.
        assert!(shell.wait().unwrap().success());
    }
}
