//! A keeper in a sandbox, as of a container that lets few calls through.

use std::process::{Command, Stdio};

use crate::actor::Place;
use crate::keeper::{memcuda, until};
use crate::start::Started;
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
