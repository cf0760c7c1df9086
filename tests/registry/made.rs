//! Memory that commands make with the whole keeper (`whole`): of unusual kinds, in unusual
//! surroundings, and for how long.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::waiting::until;
use crate::whole::{Keeper, attach, caller};

#[test]
fn one_element_has_no_shape_and_a_name_may_begin_as_an_option_does() {
    let keeper = Keeper::start();
    let mut call = caller(&keeper);
    let made = call(json!({"op": "create", "name": "-w", "dtype": "f64", "shape": []}));
    assert_eq!(made["entry"]["bytes"], 8, "{made}");
    let copied = call(json!({"op": "clone", "src": "-w", "dst": "--copy"}));
    assert_eq!(copied["entry"]["bytes"], 8, "{copied}");
}

/// Which whoever starts a keeper may do, and programs that it starts inherit.
#[test]
fn a_keeper_that_was_started_ignoring_the_ends_of_children_hears_of_them() {
    const IGNORES: &str = "import os, signal, sys\n\
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
        os.execv(sys.argv[1], sys.argv[1:])";
    let keeper = Keeper::start_by(&["python3", "-c", IGNORES]);
    let made = caller(&keeper)(json!({"op": "create", "name": "w", "bytes": 4096}));
    assert_eq!(made["status"], "ok", "{made}");
}

#[test]
fn what_commands_make_can_be_given_a_time() {
    let keeper = Keeper::start();
    let mut call = caller(&keeper);
    let made = call(json!({"op": "create", "name": "w", "bytes": 4096}));
    assert_eq!(made["entry"]["persist"], "yes");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let timed = call(json!({"op": "persist", "name": "w", "seconds": 3600}));
    let until_s = timed["entry"]["persist"].as_u64().unwrap();
    assert!(
        (3600..3660).contains(&(until_s - now_s.as_secs())),
        "{timed}"
    );
    let again = call(json!({"op": "persist", "name": "w"}));
    assert_eq!(again["entry"]["persist"], "yes");
    // Its holder has it to the end.
    let mut client = keeper.client();
    attach(&mut client, "w");
    let held = call(json!({"op": "persist", "name": "w", "seconds": 0}));
    assert_eq!(held["entry"]["persist"], "no");
    drop(client);
    until("gone", || keeper.names().is_empty());
    let gone = call(json!({"op": "persist", "name": "w"}));
    assert_eq!(gone["error"]["code"], "NOT_FOUND");
    let wrong = call(json!({"op": "persist", "name": "w", "seconds": -1}));
    assert_eq!(wrong["error"]["code"], "INVALID");
}
