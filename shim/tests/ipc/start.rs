//! How a process finds a keeper, or starts one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::actor::{Actor, Place, program};
use crate::keeper::{memcuda, processes, signal, until};
use crate::{INVALID_VALUE, MIB, support};

#[test]
fn without_a_keeper_the_driver_refuses_and_one_line_says_why() {
    for (keeper, why) in [
        ("off", "MEMCUDA_KEEPER=off"),
        ("/nowhere/keeper.sock", "no keeper answers"),
    ] {
        let place = Place::empty();
        let mut actor = place.actor_with(&[("MEMCUDA_KEEPER", keeper)]);
        let at = actor.filled(4 * MIB, 1);
        for _ in 0..3 {
            assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
        }
        actor.free(&at);
        let log = actor.end();
        let said = log
            .lines()
            .filter(|line| line.contains("cannot be exported"));
        assert_eq!(said.count(), 1, "{log}");
        assert!(log.contains(why), "{log}");
    }
}

/// As `docs/differences.md` says.
#[test]
fn memory_that_the_driver_exports_nowhere_has_no_handle_and_one_line_says_so() {
    let place = Place::with_keeper();
    let mut actor = place.actor_with(&[("MEMCUDA_SIM_LACKS", "descriptors")]);
    let at = actor.filled(4 * MIB, 1);
    for _ in 0..2 {
        assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
    }
    let log = actor.end();
    assert_eq!(log.matches("cannot be exported by CUDA IPC").count(), 1);
}

#[test]
fn a_keeper_is_started_when_it_is_first_needed() {
    // As they are built.
    starts_a_keeper("release", "release", 0);
}

#[test]
fn an_installed_library_finds_its_command() {
    // The tree of `make install` and of packages, and an environment with the wheel.
    starts_a_keeper("lib/memcuda", "bin", 0);
    starts_a_keeper("libexec/memcuda", "bin", 0);
}

/// In each process so many libraries ask for the driver's functions before.
#[test]
fn a_keeper_is_started_in_a_crowd_of_libraries() {
    starts_a_keeper("release", "release", 40);
}

/// As in a container that is read-only: root's own place cannot be made there.
#[test]
fn a_keeper_of_roots_is_elsewhere_where_its_place_cannot_be_made() {
    let place = Place::empty();
    let mut tree = Tree::new(&place, "release", "release", 0);
    tree.runtime = place.path("root");
    fs::create_dir(&tree.runtime).unwrap();
    let _keepers = Started(tree.runtime.display().to_string());
    let mut actor = tree.behind(&place, "mount -t tmpfs -o ro none /run");
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
    assert!(tree.runtime.join("memcuda/keeper.sock").exists());
}

/// It serves other programs as well.
#[test]
fn a_keeper_has_more_open_files_than_the_program_that_starts_it_where_it_may() {
    let place = Place::empty();
    let mut tree = Tree::new(&place, "release", "release", 0);
    tree.runtime = place.path("root");
    fs::create_dir(&tree.runtime).unwrap();
    let keepers = Started(tree.runtime.display().to_string());
    let few = "ulimit -n 300";
    let mut actor = tree.behind(&place, &format!("mount -t tmpfs -o ro none /run; {few}"));
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
    // Who may raise a limit here, if anybody.
    let many = format!("{few}; ulimit -Hn 1048576");
    let may = Command::new("sh").args(["-c", &many]).output().unwrap();
    let most = if may.status.success() {
        "1048576"
    } else {
        "300"
    };
    for pid in keepers.settled() {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let files = limits.lines().find(|line| line.contains("open files"));
        assert_eq!(files.unwrap().split_whitespace().nth(4), Some(most));
    }
}

/// Its command ends at once, as one does that can make no directory for its socket.
#[test]
fn a_keeper_that_does_not_come_is_waited_for_once() {
    let place = Place::empty();
    let tree = Tree::new(&place, "release", "release", 0);
    let command = place.path("release").join(memcuda().file_name().unwrap());
    support::run(Command::new("cp").arg("/bin/true").arg(command));
    let mut actor = tree.start(&place);
    let at = actor.filled(4 * MIB, 1);
    assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
    // As long as nobody is asked again.
    std::thread::sleep(Duration::from_millis(5100));
    assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
    let log = actor.end();
    assert_eq!(log.matches("keeper started: ").count(), 1, "{log}");
}

#[test]
fn a_keeper_that_does_not_come_is_not_waited_for_for_ever_where_the_clock_stands_still() {
    let place = Place::empty();
    let tree = Tree::new(&place, "release", "release", 0);
    let command = place.path("release").join(memcuda().file_name().unwrap());
    support::run(Command::new("cp").arg("/bin/true").arg(command));
    let arguments = ["-shared", "-fPIC"];
    let still = support::compile("../support/still.c", "libstill.so", &arguments);
    let both = std::env::join_paths([&still, &tree.library]).unwrap();
    let mut actor = Actor::start(tree.command(&place).env("LD_PRELOAD", both));
    let at = actor.filled(4 * MIB, 1);
    assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
    actor.end();
}

/// It is in another directory, where this user may write nothing.
#[test]
fn a_keeper_that_is_started_writes_its_programs_log() {
    let place = Place::empty();
    let tree = Tree::new(&place, "release", "release", 0);
    let keepers = Started(tree.runtime.display().to_string());
    let mut command = tree.command(&place);
    command.current_dir(&tree.runtime);
    // Spaces around it are none of its name.
    let mut actor = Actor::start(command.env("MEMCUDA_LOG_FILE", " job.log "));
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
    let log = || fs::read_to_string(tree.runtime.join("job.log")).unwrap();
    assert!(log().contains("keeper started: "), "{}", log());
    // The line of a standby that starts another one.
    until("the keeper has a standby", || keepers.pids().len() == 2);
    let first = keepers.pids().into_iter().min().unwrap();
    signal(first, libc::SIGKILL);
    until("its standby's line", || log().contains("started keeper "));
    actor.end();
}

/// As bash writes `MEMCUDA_LOG_FILE=>(cat)`: to the keeper that number is no file.
#[test]
fn a_keeper_starts_where_its_programs_log_is_an_open_file() {
    let place = Place::empty();
    let tree = Tree::new(&place, "release", "release", 0);
    let _keepers = Started(tree.runtime.display().to_string());
    let mut shell = tree.running(&place, Path::new("sh"));
    shell.args(["-c", "exec 9>&2; LD_PRELOAD=$1 exec \"$0\""]);
    shell.args([&tree.program, &tree.library]);
    shell
        .env_remove("LD_PRELOAD")
        .env("MEMCUDA_LOG_FILE", "/dev/fd/9");
    let mut actor = Actor::start(&mut shell);
    let at = actor.filled(4 * MIB, 1);
    actor.handle(&at);
}

/// The library has said so, and logs elsewhere.
#[test]
fn a_keeper_starts_where_its_programs_log_cannot_be_opened() {
    let place = Place::empty();
    let tree = Tree::new(&place, "release", "release", 0);
    let unread = place.path("unread");
    support::run(Command::new("mkfifo").arg(&unread));
    for log in [Path::new("/nowhere/job.log"), &unread] {
        let _keepers = Started(tree.runtime.display().to_string());
        let mut actor = Actor::start(tree.command(&place).env("MEMCUDA_LOG_FILE", log));
        let at = actor.filled(4 * MIB, 1);
        actor.handle(&at);
        let said = actor.end();
        assert!(said.contains("cannot be opened"), "{said}");
    }
}

/// What `memcuda doctor` sets for its program is not for who outlives it.
#[test]
fn a_keeper_that_starts_under_doctor_has_the_settings_of_any_other() {
    let place = Place::empty();
    let tree = Tree::new(&place, "release", "release", 0);
    let command = place.path("release").join(memcuda().file_name().unwrap());
    let settings = |verb: &str, log: Option<&str>| {
        let keepers = Started(tree.runtime.display().to_string());
        let mut job = tree.running(&place, &command);
        job.env_remove("LD_PRELOAD").current_dir(&tree.runtime);
        job.env("MEMCUDA_NAMES", "size=4MiB,name=a");
        job.envs(log.map(|log| ("MEMCUDA_LOG_FILE", log)));
        job.args([verb, "--", "sh", "-c", "echo alloc 4194304 | \"$0\""]);
        job.arg(&tree.program);
        // One that comes too late for its program serves the next one.
        until("there is a keeper", || {
            support::run(&mut job);
            !keepers.pids().is_empty()
        });
        let first = keepers.settled()[0];
        let settings = fs::read(format!("/proc/{first}/environ")).unwrap();
        let settings = String::from_utf8(settings).unwrap();
        let mut settings: Vec<_> = settings.split('\0').map(str::to_owned).collect();
        settings.sort();
        settings
    };
    for log in [None, Some("job.log")] {
        assert_eq!(settings("doctor", log), settings("run", log));
    }
}

/// A library, its command and a program where another user comes, too.
pub struct Tree {
    pub library: PathBuf,
    pub program: PathBuf,
    simulator: PathBuf,
    crowd: (PathBuf, OsString),
    pub runtime: PathBuf,
    user: u32,
}

impl Tree {
    /// Library and command lie in these folders of the place.
    pub fn new(place: &Place, libraries: &str, commands: &str, crowd: usize) -> Self {
        Self::of(NOBODY, place, libraries, commands, crowd)
    }

    /// The same for this user, where there may be others.
    pub fn of(user: u32, place: &Place, libraries: &str, commands: &str, crowd: usize) -> Self {
        let copy = |from: &Path, folder: &str| {
            let into = place.path(folder);
            fs::create_dir_all(&into).unwrap();
            // Not by this process: another thread's child could have a program open for
            // writing when it is run.
            support::run(Command::new("cp").arg("-r").arg(from).arg(&into));
            into.join(from.file_name().unwrap())
        };
        copy(memcuda(), commands);
        let tree = Self {
            library: copy(&support::shim(), libraries),
            program: copy(program(), "."),
            simulator: copy(&support::simulator(), "."),
            crowd: crate::crowd::crowd(&place.path("crowd"), crowd),
            runtime: place.path("runtime"),
            user,
        };
        fs::create_dir(&tree.runtime).unwrap();
        let all = tree.runtime.parent().unwrap();
        fs::set_permissions(all, fs::Permissions::from_mode(0o755)).unwrap();
        if is_root() {
            chown(&tree.runtime, Some(user), Some(user)).unwrap();
            let shared = place.path("devices");
            fs::write(&shared, "").unwrap();
            chown(&shared, Some(user), Some(user)).unwrap();
        }
        tree
    }

    /// Starts the program, as a user who is not root.
    pub fn start(&self, place: &Place) -> Actor {
        Actor::start(&mut self.command(place))
    }

    fn command(&self, place: &Place) -> Command {
        self.running(place, &self.program)
    }

    /// The same as root, behind mounts that nobody else sees. `$2` is the test's directory.
    pub fn behind(&self, place: &Place, mounts: &str) -> Actor {
        // Who is not root is it there, to itself.
        let flags = if is_root() { "-m" } else { "-Urm" };
        let script = format!("{mounts} && LD_PRELOAD=$1 exec \"$0\"");
        let mut unshared = self.running(place, Path::new("unshare"));
        unshared.args([flags, "sh", "-e", "-c", &script]);
        unshared.args([&self.program, &self.library, &place.path("")]);
        if is_root() {
            unshared.uid(0).gid(0);
        }
        Actor::start(unshared.env_remove("LD_PRELOAD"))
    }

    /// The same of another program.
    pub fn running(&self, place: &Place, program: &Path) -> Command {
        let (first, others) = &self.crowd;
        let mut command = place.command(program, &[self.library.clone(), first.clone()]);
        command
            .env("CROWD", others)
            .env("LD_LIBRARY_PATH", &self.simulator)
            .env("MEMCUDA_KEEPER", "auto")
            .env("XDG_RUNTIME_DIR", &self.runtime);
        if is_root() {
            command.uid(self.user).gid(self.user);
        }
        command
    }
}

const NOBODY: u32 = 65534;

/// Root has a place of the whole host, which is not the test's.
pub fn is_root() -> bool {
    // SAFETY: has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// A keeper that the library starts is nobody's child, has nothing of the job's,
/// and is used by the next process. Library and command lie in these folders.
fn starts_a_keeper(libraries: &str, commands: &str, crowd: usize) {
    let place = Place::empty();
    let tree = Tree::new(&place, libraries, commands, crowd);
    let keepers = Started(tree.runtime.display().to_string());
    let (mut exporter, mut importer) = (tree.start(&place), tree.start(&place));
    let at = exporter.filled(4 * MIB, 1);
    let handle = exporter.handle(&at);
    let here = importer.open(&handle);
    assert!(importer.has(&here, 4 * MIB, 1));
    assert_eq!(exporter.say("reap"), "0 -1", "it has no child");

    for pid in keepers.settled() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains("LD_PRELOAD"), "{environment}");
        assert_ne!(session_of(pid), session_of(exporter.pid() as i32));
    }
    importer.close(&here);
    let log = exporter.end();
    assert!(log.contains("keeper started: "), "{log}");
    assert!(!importer.end().contains("keeper started: "));
}

/// Has a process a pipe open? The test's own ones are.
fn has_pipe(pid: i32) -> bool {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let all = all.flatten().flatten();
    let mut open = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    open.any(|open| open.to_string_lossy().starts_with("pipe:"))
}

fn session_of(pid: i32) -> String {
    processes::stat(pid as u32)[3].clone()
}

/// The keepers that were started with a text in their environment; they end
/// with it.
pub struct Started(pub String);

impl Started {
    fn pids(&self) -> Vec<i32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let keepers = pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut windows = environment.windows(self.0.len());
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == "memcuda" && windows.any(|window| window == self.0.as_bytes())
        });
        keepers.collect()
    }

    /// The keeper and its standby, once nobody else of those who started them is there.
    fn settled(&self) -> [i32; 2] {
        let mut settled = None;
        until("the keeper is settled", || {
            let two = <[i32; 2]>::try_from(self.pids()).ok();
            settled = two.filter(|pids| !pids.iter().any(|pid| has_pipe(*pid)));
            settled.is_some()
        });
        settled.unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A standby starts another keeper, if it is quick.
        while let pids @ [_, ..] = &self.pids()[..] {
            pids.iter().for_each(|pid| signal(*pid, libc::SIGKILL));
        }
    }
}
