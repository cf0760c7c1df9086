//! `memcuda top` in a real terminal (a pty), and where there is none. What is on
//! the screen is told beside its code.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use memcuda::stats_page::VERSION;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::snapshot::{Holder, mixed};
use crate::stat::{COUNTS, Shown, counters};
use crate::waiting::LONG;
use crate::{
    NO_THREADS, check_units, code, failed, library, memcuda, objects, run, stderr, stdout, until,
};

/// What gives a terminal back: the screen before, and the cursor.
const BACK: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

/// What a test writes to a terminal when nobody else will.
const END: &str = "[the end]";

/// The command in a terminal of its own.
struct Terminal {
    child: Child,
    master: File,
    slave: OwnedFd,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(columns: u16, rows: u16) -> Self {
        let (master, slave) = pty(columns, rows);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = Self::command()
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, all) = (master.try_clone().unwrap(), said.clone());
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut room) {
                all.lock().unwrap().extend(&room[..count]);
            }
        });
        Self {
            child,
            master,
            slave,
            said,
        }
    }

    fn command() -> Command {
        let mut command = memcuda();
        command.args(["top", "--delay", "0.2"]);
        command
            .env("MEMCUDA_KEEPER", "off")
            .env("TERM", "xterm-256color");
        command
    }

    /// All that was said.
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    /// Waits until this is on the screen.
    #[track_caller]
    fn wait_for(&self, text: &str) {
        until(text, || screen(&self.said.lock().unwrap()).contains(text));
    }

    fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Is it raw: do keys come one by one, unseen?
    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for its end: with this status, and the terminal as it was.
    fn ends_with(&mut self, status: i32) -> String {
        until("it ends", || self.child.try_wait().unwrap().is_some());
        // Whatever it said comes out before this.
        rustix::io::write(&self.slave, END.as_bytes()).unwrap();
        until("all is read", || self.said().ends_with(END));
        let said = self.said();
        assert_eq!(self.child.wait().unwrap().code(), Some(status), "{said:?}");
        for word in BACK {
            assert!(said.contains(word), "{word:?}: {said:?}");
        }
        assert!(!self.is_raw());
        said
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", screen(&self.said.lock().unwrap()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a terminal shows that was told this: of all commands only those that move
/// the cursor and clear the screen matter for the text.
fn screen(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let mut cells = vec![vec![' '; 150]; 60];
    let (mut row, mut column) = (0, 0);
    let mut rest = said.chars();
    while let Some(c) = rest.next() {
        if c != '\x1b' {
            if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                *cell = c;
            }
            column += 1;
            continue;
        }
        if rest.next() != Some('[') {
            continue;
        }
        let mut words = String::new();
        let end = rest.by_ref().find(|c| {
            words.push(*c);
            c.is_ascii_alphabetic()
        });
        let mut numbers = words[..words.len().saturating_sub(1)]
            .split(';')
            .map(|it| it.parse().unwrap_or(1));
        match end {
            Some('H') => {
                row = numbers.next().unwrap_or(1) - 1;
                column = numbers.next().unwrap_or(1) - 1;
            }
            Some('J') => cells.iter_mut().flatten().for_each(|cell| *cell = ' '),
            _ => {}
        }
    }
    let lines = cells
        .iter()
        .map(|line| line.iter().collect::<String>().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// Both ends of a terminal of this size.
fn pty(columns: u16, rows: u16) -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = File::options().read(true).write(true).open(name).unwrap();
    let slave = OwnedFd::from(slave);
    resize(&slave, columns, rows);
    (File::from(master), slave)
}

/// What a command shows in a terminal of 80 columns; less than a pty has room for.
pub fn shown(mut command: Command) -> String {
    let (mut master, slave) = pty(80, 24);
    let status = command.stdout(slave).status().unwrap();
    assert!(status.success());
    drop(command);
    let mut said = Vec::new();
    // Ends in an error, as nobody has the other end any more.
    master.read_to_end(&mut said).unwrap_err();
    String::from_utf8(said).unwrap()
}

fn resize(terminal: &OwnedFd, ws_col: u16, ws_row: u16) {
    let size = Winsize {
        ws_col,
        ws_row,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn it_shows_processes_hears_keys_and_gives_the_terminal_back() {
    let shown = Shown::new(VERSION, &[counters()]);
    let mut top = Terminal::start(80, 24);
    top.wait_for("PHYSICAL");
    assert!(top.is_raw());
    top.keys(&format!("/{}\r", shown.pid()));
    top.wait_for(&format!("with \"{}\"", shown.pid()));
    // It has a page and no picture, which is said where the map would be.
    top.wait_for("no map: ");
    top.keys("?");
    top.wait_for("sort by another column");
    top.keys("x\t");
    top.wait_for("MEMCUDA_KEEPER is off");
    top.keys("\x1b[A\x1b[6~q");
    top.ends_with(0);
}

#[test]
fn the_map_of_a_process_is_drawn() {
    let holder = Holder::start(&[], &mixed());
    let mut top = Terminal::start(100, 30);
    top.wait_for("PHYSICAL");
    top.keys(&format!("/{}\r", holder.pid()));
    top.wait_for("(memcuda simulated GPU, 1.0 GiB");
    top.wait_for("█ live ");
    top.wait_for("░ idle ");
    // The terminal may have read a part of it.
    until("four bars", || {
        let shown = screen(&top.said.lock().unwrap());
        let bars = shown.lines().filter(|line| line.contains("████"));
        bars.count() == 4
    });
    top.keys("q");
    top.ends_with(0);
}

#[test]
fn a_new_size_is_drawn_at_once() {
    let _shown = Shown::new(VERSION, &[counters()]);
    let mut top = Terminal::start(80, 24);
    top.wait_for("PHYSICAL");
    resize(&top.slave, 40, 8);
    top.signal(Signal::WINCH);
    top.wait_for("40x8 is too small");
    resize(&top.slave, 140, 50);
    top.signal(Signal::WINCH);
    top.wait_for("REQ/S");
    top.keys("\x03");
    top.ends_with(0);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let _shown = Shown::new(VERSION, &[counters()]);
    for (signal, status) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let mut top = Terminal::start(80, 24);
        top.wait_for("PHYSICAL");
        top.signal(signal);
        top.ends_with(status);
    }
}

/// Where it is nobody's controlling terminal, so that no signal tells.
#[test]
fn the_end_of_its_terminal_ends_it() {
    let _shown = Shown::new(VERSION, &[counters()]);
    // A key that is not whole is waited for in another place.
    for keys in ["", "\x1b["] {
        let (master, slave) = pty(80, 24);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Terminal::command();
        command.stdin(end()).stdout(end()).stderr(end());
        let mut child = command.spawn().unwrap();
        let mut said = Vec::new();
        until("PHYSICAL", || {
            let mut room = [0; 4096];
            let count = (&master).read(&mut room).unwrap();
            said.extend(&room[..count]);
            screen(&said).contains("PHYSICAL")
        });
        (&master).write_all(keys.as_bytes()).unwrap();
        drop(master);
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() && begun.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(2));
        }
        // One that did not would take a processor for good.
        let _ = child.kill();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(129), "{status}");
    }
}

#[test]
fn a_panic_gives_the_terminal_back_and_is_told_after_that() {
    let _shown = Shown::new(VERSION, &[counters()]);
    let mut top = Terminal::start(80, 24);
    top.wait_for("PHYSICAL");
    top.keys("\x1b[24~");
    if cfg!(debug_assertions) {
        let said = top.ends_with(101);
        let told = said.find("as F12 asks for").expect("the panic is told");
        assert!(said.find(BACK[0]).unwrap() < told, "{said:?}");
    } else {
        // Builds for people have no such key.
        top.keys("q");
        top.ends_with(0);
    }
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    for (term, what) in [("xterm", "this is none"), ("dumb", "TERM is dumb")] {
        for arguments in [&["top"][..], &["top", "--sort", "live"]] {
            let output = memcuda().args(arguments).env("TERM", term).output();
            failed(
                &output.unwrap(),
                2,
                &format!(
                    "top needs a terminal, and {what}: top --once prints the table once, --json for programs"
                ),
            );
        }
    }
}

#[test]
fn without_a_thread_it_says_what_it_was_for() {
    let folder = tempfile::tempdir().unwrap();
    let (_master, slave) = pty(80, 24);
    let end = || Stdio::from(slave.try_clone().unwrap());
    let mut command = Terminal::command();
    command.env("LD_PRELOAD", library(folder.path(), NO_THREADS));
    let output = command.stdin(end()).stdout(end()).output().unwrap();
    failed(&output, 1, "cannot start a thread that reads keys: ");
}

#[test]
fn once_prints_a_table_and_lines_for_programs() {
    let shown = Shown::new(VERSION, &[counters()]);
    let _broken = Shown::new(99, &[]);
    let once = ["top", "--once", "--delay", "0.2", "--filter", &shown.pid()];
    let output = run(&once);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("version 99"),
        "{}",
        stderr(&output)
    );
    let text = stdout(&output);
    let row = text
        .lines()
        .find(|line| line.starts_with(&shown.pid()))
        .unwrap();
    assert!(
        row.contains("3.0 GiB") && row.contains("75%") && row.contains("sleep"),
        "{text}"
    );
    let output = run(&[&once[..], &["--json"]].concat());
    let lines = objects(&output, "top");
    assert_eq!((lines.len(), &lines[0]["command"]), (1, &"sleep".into()));
    assert_eq!(lines[0]["hits_rate"], 0.0);
    assert_eq!(lines[0]["live_bytes"], 3_u64 << 30);
    check_units(&lines[0], &COUNTS);
    let nobody = run(&[&once[..5], &["nobody"]].concat());
    assert_eq!(stdout(&nobody), "no process has \"nobody\" in it\n");
}
