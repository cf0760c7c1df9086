//! Processes that do what they are told (`actor.c`), and the place of a test.
#![allow(dead_code, reason = "each of those who share it uses a part")]

#[path = "../support/process.rs"]
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::keeper::{Keeper, until};
use crate::support;
pub use process::Process as Actor;

/// The program, compiled once.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::program("actor.c", "actor"))
}

/// A directory of one test: the devices that its processes share, and its
/// keeper, which ends with it.
pub struct Place {
    directory: tempfile::TempDir,
    pub keeper: Keeper,
}

impl Place {
    /// Without a keeper.
    pub fn empty() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            keeper: Keeper::none(),
        }
    }

    pub fn with_keeper() -> Self {
        let mut place = Self::empty();
        place.keeper.start();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command over the devices of this place and its keeper.
    pub fn command(&self, program: &Path, libraries: &[PathBuf]) -> Command {
        let mut command = support::preloaded(program, libraries);
        command
            .env("MEMCUDA_SIM_SHARED", self.path("devices"))
            .env("MEMCUDA_SIM_DEVICES", "2")
            .env("MEMCUDA_KEEPER", self.keeper.socket())
            .env("MEMCUDA_LOG", "info");
        command
    }

    /// A preloaded process.
    pub fn actor(&self) -> Actor {
        self.actor_with(&[])
    }

    /// The same with these settings.
    pub fn actor_with(&self, settings: &[(&str, &str)]) -> Actor {
        let mut command = self.command(program(), &[support::shim()]);
        Actor::start(command.envs(settings.iter().copied()))
    }
}

impl Actor {
    /// Says a line, where the call must succeed: what comes behind the code.
    #[track_caller]
    pub fn must(&mut self, line: &str) -> String {
        let answer = self.say(line);
        let (code, rest) = answer.split_once(' ').unwrap_or((&answer, ""));
        assert_eq!(code, "0", "{line}: {answer}");
        rest.to_owned()
    }

    /// The code of a call.
    pub fn code(&mut self, line: &str) -> i32 {
        let answer = self.say(line);
        answer.split(' ').next().unwrap().parse().unwrap()
    }

    /// The address at which it has what a handle stands for.
    #[track_caller]
    pub fn open(&mut self, handle: &str) -> String {
        self.must(&format!("open {handle}"))
    }

    #[track_caller]
    pub fn close(&mut self, opened: &str) {
        self.must(&format!("close {opened}"));
    }

    #[track_caller]
    pub fn free(&mut self, at: &str) {
        self.must(&format!("free {at}"));
    }

    /// The handle of an allocation.
    #[track_caller]
    pub fn handle(&mut self, at: &str) -> String {
        self.must(&format!("get {at}"))
    }

    /// An allocation with a pattern in it.
    pub fn filled(&mut self, bytes: u64, number: u64) -> String {
        let at = self.must(&format!("alloc {bytes}"));
        self.must(&format!("fill {at} {bytes} {number}"));
        at
    }

    /// Does this memory hold a pattern?
    pub fn has(&mut self, at: &str, bytes: u64, number: u64) -> bool {
        self.must(&format!("is {at} {bytes} {number}")) == "same"
    }

    /// Waits until an address is lent again. What is lent instead is held so
    /// long, or it would be lent again first.
    #[track_caller]
    pub fn gets_again(&mut self, there: &str, bytes: u64) {
        let mut held = Vec::new();
        until("the memory comes back", || {
            // Not often: every try holds something, and the device has room for so many.
            std::thread::sleep(Duration::from_millis(20));
            held.push(self.must(&format!("alloc {bytes}")));
            held.last().is_some_and(|at| at == there)
        });
        for at in held {
            self.must(&format!("free {at}"));
        }
    }

    /// Physical bytes that the process holds of device 0.
    pub fn physical(&mut self) -> u64 {
        self.must("physical").parse().unwrap()
    }
}
