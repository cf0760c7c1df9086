//! Creators and holders, the keeper and its standby are killed at random, while
//! all of them work. Then nothing is left, but what was persisted, intact.

use std::process::Child;
use std::time::{Duration, Instant};

use memcuda::share::protocol::{Persist, Request};

use crate::random::Random;
use crate::requests::*;
use crate::support::*;
use crate::worker;

/// Kills of workers between two of the keeper or its standby.
const WORKERS_PER_KEEPER: usize = 10;

struct Crowd(Vec<Child>);

impl Crowd {
    /// Kills one, and starts another in its place.
    fn replace(&mut self, at: usize, keeper: &Keeper) {
        self.kill(at);
        self.0[at] = worker::start(&keeper.socket());
    }

    fn kill(&mut self, at: usize) {
        let ended = self.0[at].try_wait().unwrap();
        assert_eq!(ended, None, "a worker ended by itself: see above");
        self.0[at].kill().unwrap();
        self.0[at].wait().unwrap();
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `MEMCUDA_STORM_SECONDS` makes it longer.
#[test]
fn whoever_is_killed_leaves_nothing_behind() {
    let seconds = std::env::var("MEMCUDA_STORM_SECONDS");
    let seconds = seconds.map_or(5, |seconds| seconds.parse().expect("a number of seconds"));
    let keeper = Keeper::start(&[]);
    let fresh = keeper.fresh_descriptors();
    let mut own = keeper.client();
    let kept: Vec<String> = (0..20).map(|n| format!("kept/{n}")).collect();
    for name in &kept {
        make(&mut own, name, &worker::mark(name)).unwrap();
        persist(&mut own, name, Persist::Yes);
    }
    drop(own);
    let mut crowd = Crowd((0..6).map(|_| worker::start(&keeper.socket())).collect());
    let mut random = Random::new(std::process::id().into());
    let (mut workers, mut keepers, mut standbys) = (0, 0, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    // However slow the machine is, some are killed, of either kind.
    while Instant::now() < end || workers < 2 * WORKERS_PER_KEEPER {
        std::thread::sleep(Duration::from_millis(random.index(20) as u64));
        crowd.replace(random.index(6), &keeper);
        workers += 1;
        if workers % WORKERS_PER_KEEPER != 0 {
            continue;
        }
        // One of the two has to live until the other one has all.
        let status = keeper.settle("no standby", |status| status.standby != 0);
        if random.index(2) == 0 {
            keeper.kill(status.pid);
            keepers += 1;
            keeper.settle("no new keeper", |now| now.pid != status.pid);
        } else {
            keeper.kill(status.standby);
            standbys += 1;
            keeper.settle("no new standby", |now| {
                now.standby != status.standby && now.standby != 0
            });
        }
    }
    for at in 0..crowd.0.len() {
        crowd.kill(at);
    }
    crowd.0.clear();
    println!("killed {workers} workers, {keepers} keepers, {standbys} standbys");
    assert!(keepers + standbys > 0);
    let mut own = keeper.client();
    for name in &kept {
        let (_, memory) = attach(&mut own, name).unwrap();
        worker::check(name, memory);
    }
    drop(own);
    keeper.settle("references stay", |status| {
        status.references == 0 && status.dying == 0
    });
    let mut own = keeper.client();
    for entry in list(&mut own, true) {
        // What is there was persisted; the rest went with its holders.
        assert_eq!(entry.persist, Persist::Yes, "{entry:?}");
        let name = entry.name.unwrap();
        let (_, memory) = attach(&mut own, name.as_str()).unwrap();
        worker::check(name.as_str(), memory);
    }
    let collect = Request::Collect {
        dry: false,
        kept: true,
    };
    drop(own);
    keeper.settle("references stay", |status| status.references == 0);
    keeper.client().call(collect, &[]).unwrap();
    keeper.settle_empty(fresh);
}
