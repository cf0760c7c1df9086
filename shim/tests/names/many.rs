//! Many names in a process with few descriptors, and names that are opened often.

use crate::actor::{Actor, Place, program};
use crate::support;

/// Of 1 MiB each, in handles of 2 MiB; so many in one process.
const NAMES: usize = 10_000;
/// So many of them in another one, too: the simulation looks through all that is
/// open for each.
const OPENED: usize = 1_000;

#[test]
fn ten_thousand_names_in_a_process_with_a_thousand_descriptors() {
    let place = Place::with_keeper();
    let few = || {
        let mut command = place.command(program(), &[support::shim()]);
        command.env("MEMCUDA_SIM_MEMORY", "64GiB");
        // SAFETY: a system call in the child, which changes its own limit.
        unsafe {
            use std::os::unix::process::CommandExt;
            command.pre_exec(|| {
                let limit = libc::rlimit {
                    rlim_cur: 1024,
                    rlim_max: 1024,
                };
                match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        Actor::start(&mut command)
    };
    let (mut maker, mut opener) = (few(), few());
    for (actor, count, what) in [(&mut maker, NAMES, "create"), (&mut opener, OPENED, "open")] {
        let said = actor.must(&format!("many {count} {what}"));
        let mut words = said.split(' ');
        let mut number = || words.next().unwrap().parse::<usize>().unwrap();
        let (listed, list_us, descriptors) = (number(), number(), number());
        println!("{what}: {listed} listed in {list_us} us, {descriptors} descriptors");
        assert_eq!(listed, NAMES);
        assert!(descriptors < 64, "{descriptors} descriptors");
    }
}

#[test]
fn an_open_name_is_opened_again_without_a_system_call() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    actor.opened("create w bytes=4096");
    assert_eq!(actor.must("again w 2000"), "2000");
}
