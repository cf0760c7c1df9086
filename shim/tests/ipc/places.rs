//! Processes of one user whose keeper is not where it was, or not where it should be. Needs
//! root, which is other users and has a directory of theirs, but for what is behind mounts.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::actor::{Actor, Place};
use crate::keeper::until;
use crate::start::{Started, Tree, is_root};
use crate::{INVALID_VALUE, MIB};

/// Users of this process's tests, so many behind those of others: several may run at once.
const FIRST: u32 = 100_000_000;
const EACH: u32 = 4;

/// A user of one test, who has no other keeper in /tmp.
struct User {
    _keepers: Started,
    temporary: PathBuf,
    tree: Tree,
    place: Place,
}

impl User {
    fn new(number: u32) -> Option<Self> {
        let user = FIRST + EACH * std::process::id() + number;
        if !is_root() {
            let left_out = std::env::var_os("MEMCUDA_TESTS_AS_ONE_USER").is_some();
            assert!(
                left_out,
                "to be another user is root's to do; MEMCUDA_TESTS_AS_ONE_USER=1 leaves it out"
            );
            return None;
        }
        let place = Place::empty();
        let tree = Tree::of(user, &place, "release", "release", 0);
        let temporary = PathBuf::from(format!("/tmp/memcuda-{user}"));
        let user = Self {
            _keepers: Started(tree.runtime.display().to_string()),
            temporary,
            tree,
            place,
        };
        user.leave_temporary();
        Some(user)
    }

    fn actor(&self) -> Actor {
        self.tree.start(&self.place)
    }

    fn leave_temporary(&self) {
        for end in ["", ".1"] {
            let _ = fs::remove_dir_all(format!("{}{end}", self.temporary.display()));
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.leave_temporary();
    }
}

/// Does one have what the other one exports?
#[track_caller]
fn shares(exporter: &mut Actor, importer: &mut Actor) {
    let at = exporter.filled(4 * MIB, 1);
    let handle = exporter.handle(&at);
    let here = importer.open(&handle);
    assert!(importer.has(&here, 4 * MIB, 1));
    importer.close(&here);
}

#[test]
fn who_comes_after_a_logout_shares_with_who_was_there() {
    let Some(user) = User::new(0) else {
        return;
    };
    let (mut exporter, mut importer) = (user.actor(), user.actor());
    let at = exporter.filled(4 * MIB, 1);
    let handle = exporter.handle(&at);
    importer.open(&handle);
    fs::remove_dir_all(&user.tree.runtime).unwrap();
    until("the keeper at its other place", || {
        user.temporary.join("keeper.sock").exists()
    });
    let mut later = user.actor();
    let here = later.open(&handle);
    assert!(later.has(&here, 4 * MIB, 1));
    shares(&mut exporter, &mut later);
    shares(&mut later, &mut importer);
    for actor in [exporter, importer, later] {
        actor.end();
    }
}

#[test]
fn a_directory_of_somebody_else_in_tmp_keeps_nobody_from_sharing() {
    let Some(user) = User::new(1) else {
        return;
    };
    fs::remove_dir_all(&user.tree.runtime).unwrap();
    fs::create_dir(&user.temporary).unwrap();
    let (mut exporter, mut importer) = (user.actor(), user.actor());
    shares(&mut exporter, &mut importer);
    let log = exporter.end();
    let beside = format!("{}.1/keeper.sock", user.temporary.display());
    assert!(log.contains(&beside), "{log}");
    importer.end();
}

/// As in a container whose files are read-only: all but the test's own directory and
/// `/dev/shm`, which nobody else sees.
const READ_ONLY: &str = "mount -t tmpfs -o ro none /run
    mount --bind /tmp /tmp; mount --bind $2 $2; mount -o remount,bind,ro /tmp
    mount -t tmpfs none /dev/shm";

/// A tree of root's, and what ends its keepers. The user's directory is this file.
fn of_root(place: &Place) -> (Tree, Started) {
    let mut tree = Tree::of(0, place, "release", "release", 0);
    tree.runtime = place.path("file");
    fs::write(&tree.runtime, "").unwrap();
    let keepers = Started(tree.runtime.display().to_string());
    (tree, keepers)
}

#[test]
fn where_all_else_is_read_only_a_keeper_is_in_shared_memory() {
    let place = Place::empty();
    let (tree, _keepers) = of_root(&place);
    let mut actor = tree.behind(&place, READ_ONLY);
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
    let log = actor.end();
    assert!(log.contains("for /dev/shm/memcuda-0/keeper.sock"), "{log}");
}

#[test]
fn where_no_more_files_can_be_made_a_keeper_is_elsewhere() {
    let place = Place::empty();
    let (tree, _keepers) = of_root(&place);
    fs::remove_file(&tree.runtime).unwrap();
    fs::create_dir(&tree.runtime).unwrap();
    let full = format!("{READ_ONLY}; mount -t tmpfs -o nr_inodes=1 none $2/file");
    let mut actor = tree.behind(&place, &full);
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
    let log = actor.end();
    assert!(log.contains("for /dev/shm/memcuda-0/keeper.sock"), "{log}");
}

#[test]
fn where_a_keeper_can_be_nowhere_none_is_waited_for() {
    let place = Place::empty();
    let (tree, _keepers) = of_root(&place);
    let mounts = format!("{READ_ONLY}; mount -o remount,ro /dev/shm");
    let mut actor = tree.behind(&place, &mounts);
    let at = actor.filled(4 * MIB, 1);
    let began = Instant::now();
    assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
    assert!(began.elapsed() < Duration::from_secs(5));
    let log = actor.end();
    assert!(!log.contains("keeper started"), "{log}");
    assert!(log.contains("no keeper can be at /tmp/memcuda-0"), "{log}");
}
