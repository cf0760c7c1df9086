//! A keeper in a sandbox, as of a container that lets few calls through.

use std::process::{Command, Stdio};

use crate::actor::{Actor, Place};
use crate::keeper::{memcuda, until};
use crate::start::{Started, Tree};
use crate::{MIB, support};

#[test]
fn a_keeper_that_may_not_ask_for_its_limits_serves() {
    let place = Place::empty();
    let _keepers = Started(place.path("").display().to_string());
    let mut sandbox = Command::new(support::program("refused.c", "refused"));
    sandbox.arg(libc::SYS_prlimit64.to_string()).arg(memcuda());
    sandbox.args(["keeper", "--foreground"]);
    sandbox.env("MEMCUDA_KEEPER", place.keeper.socket());
    let mut keeper = sandbox.stderr(Stdio::null()).spawn().unwrap();
    until("the keeper answers, or has ended", || {
        place.keeper.verb(&["keeper", "status"]).is_some() || keeper.try_wait().unwrap().is_some()
    });
    let mut actor = place.actor();
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
    actor.end();
    assert!(place.keeper.verb(&["keeper", "stop", "--force"]).is_some());
    assert!(keeper.wait().unwrap().success());
}

/// As one that is older than a call refuses it, where the kernel would have said that there is
/// no such call.
#[test]
fn a_program_whose_sandbox_does_not_know_faccessat2_has_a_keeper() {
    let place = Place::empty();
    let tree = Tree::new(&place, "release", "release", 0);
    let _keepers = Started(tree.runtime.display().to_string());
    let sandbox = place.path("refused");
    let built = support::program("refused.c", "refused");
    support::run(Command::new("cp").arg(built).arg(&sandbox));
    let mut command = tree.running(&place, &sandbox);
    command.arg(libc::SYS_faccessat2.to_string());
    command.args(["/bin/sh", "-c", "LD_PRELOAD=$1 exec \"$0\""]);
    command.args([&tree.program, &tree.library]);
    command.env_remove("LD_PRELOAD");
    let mut actor = Actor::start(&mut command);
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
    assert!(tree.runtime.join("memcuda/keeper.sock").exists());
}
