//! What the keeper takes, on this machine: opening and closing by sixteen
//! processes, a list of 10,000 names, memory, the time from a holder's death to
//! the end of its references. `cargo bench --bench keeper`. Memory files stand
//! for GPU memory.

#[path = "../tests/support/processes.rs"]
mod processes;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memcuda::names::Name;
use memcuda::share::client::Client;
use memcuda::share::protocol::{Backend, DeviceId, Mode, Persist, Reply, Request, Spec, Status};
use rustix::fs::{MemfdFlags, memfd_create};

/// Names of the long list.
const NAMES: usize = 10_000;
/// Processes that open and close at once.
const CLIENTS: usize = 16;
/// How long they do.
const SECONDS: u64 = 5;
/// Holders that are killed.
const KILLS: usize = 200;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|argument| argument == "--client") {
        Some(at) => client(Path::new(&arguments[at + 1]), &arguments[at + 2]),
        None => bench(),
    }
}

fn bench() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("keeper.sock");
    let mut keeper = Command::new(env!("CARGO_BIN_EXE_memcuda"))
        .args(["keeper", "--foreground", "--socket"])
        .arg(&socket)
        .spawn()
        .expect("a keeper");
    let mut own = connect(&socket);
    report("resident, nothing kept", &resident(&mut own));
    deaths(&socket, &mut own);
    throughput(&socket, "open or close, 16 names", &mut own);
    let begun = Instant::now();
    for n in 0..NAMES {
        make(&mut own, &format!("layer/{n:05}"));
    }
    report(
        "10,000 names made, persisted",
        &format!("{:.0} ms", ms(begun)),
    );
    let begun = Instant::now();
    let (entries, pages) = list(&mut own);
    assert!(entries >= NAMES);
    report(
        &format!("list of {entries} names, {pages} pages"),
        &format!("{:.1} ms", ms(begun)),
    );
    report("resident, 10,000 names", &resident(&mut own));
    throughput(&socket, "open or close, 10,016 names", &mut own);
    report("resident after that", &resident(&mut own));
    let status = status(&mut own);
    let begun = Instant::now();
    kill(status.pid);
    let mut own = wait(|| Client::connect(&socket, std::process::id(), "bench", &[]).ok()).0;
    report(
        "killed, taken over, serving",
        &format!("{:.1} ms", ms(begun)),
    );
    assert_eq!(list(&mut own).0, entries);
    report("resident, successor", &resident(&mut own));
    call(&mut own, Request::Stop { force: true });
    keeper.wait().expect("its end");
}

/// Opens and closes from many processes, each a name of its own.
fn throughput(socket: &Path, what: &str, own: &mut Client) {
    for n in 0..CLIENTS {
        if list_one(own, n).is_none() {
            make(own, &format!("bench/{n}"));
        }
    }
    let before = cpu_ms(own);
    let clients = (0..CLIENTS).map(|n| start(socket, &n.to_string()));
    let clients: Vec<_> = clients.collect();
    let calls: Vec<f64> = clients
        .into_iter()
        .map(|mut client| read_line(&mut client).parse().expect("calls"))
        .collect();
    let calls: f64 = calls.iter().sum();
    let busy = (cpu_ms(own) - before) / (SECONDS as f64 * 10.0);
    report(
        what,
        &format!(
            "{:.0} calls/s, {:.0} pairs/s; keeper {busy:.0} % of a core",
            calls,
            calls / 2.0
        ),
    );
}

/// Kills holders one by one; a reference is gone when the keeper says so.
fn deaths(socket: &Path, own: &mut Client) {
    make(own, "bench/held");
    let mut took: Vec<f64> = Vec::new();
    for _ in 0..KILLS {
        let mut holder = start(socket, "hold");
        assert_eq!(read_line(&mut holder), "held");
        let killed = Instant::now();
        holder.kill().expect("killed");
        let held = || references(own, "bench/held") > 0;
        let mut held = held;
        while held() {}
        took.push(ms(killed));
        holder.wait().expect("its end");
    }
    took.sort_by(f64::total_cmp);
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    report(
        &format!("death of a holder to its references gone, {KILLS} times"),
        &format!(
            "p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
            at(50),
            at(99),
            at(100)
        ),
    );
}

/// One of the processes.
fn client(socket: &Path, role: &str) {
    let mut client = connect(socket);
    let out = |line: &str| {
        println!("{line}");
        std::io::stdout().flush().expect("read");
    };
    if role == "hold" {
        open(&mut client, "bench/held", Mode::Attach);
        out("held");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let name = format!("bench/{role}");
    let begun = Instant::now();
    let mut calls = 0u32;
    while begun.elapsed() < Duration::from_secs(SECONDS) {
        for _ in 0..16 {
            let (reply, _descriptors) = open(&mut client, &name, Mode::Attach);
            let Reply::Memory { entry, .. } = reply else {
                panic!("{reply:?}");
            };
            let generation = entry.generation;
            call(&mut client, Request::Release { generation });
            calls += 2;
        }
    }
    out(&(f64::from(calls) / begun.elapsed().as_secs_f64()).to_string());
}

fn start(socket: &Path, role: &str) -> Child {
    Command::new(std::env::current_exe().expect("itself"))
        .arg("--client")
        .arg(PathBuf::from(socket))
        .arg(role)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a client")
}

fn read_line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

fn connect(socket: &Path) -> Client {
    wait(|| Client::connect(socket, std::process::id(), "bench", &[]).ok()).0
}

fn wait<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..50_000 {
        if let Some(answer) = attempt() {
            return answer;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("no answer within 10 seconds");
}

fn call(client: &mut Client, request: Request) -> Reply {
    client.call(request, &[]).expect("an answer").0
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn open(client: &mut Client, text: &str, mode: Mode) -> (Reply, Vec<std::os::fd::OwnedFd>) {
    let spec = Spec {
        bytes: 4096,
        dtype: None,
        shape: Vec::new(),
        device: DeviceId([7; 16]),
        ordinal: 0,
        backend: Backend::Vmm,
    };
    let request = Request::Open {
        name: name(text),
        mode,
        spec,
        write: false,
        hidden: false,
    };
    client.call(request, &[]).expect("an answer")
}

/// Makes a name that stays, and holds it no longer.
fn make(client: &mut Client, text: &str) {
    let (reply, _) = open(client, text, Mode::Create);
    let Reply::Make { generation } = reply else {
        panic!("{reply:?}");
    };
    let memory = memfd_create("bench", MemfdFlags::CLOEXEC).expect("memory");
    let memory = File::from(memory);
    let commit = Request::Commit {
        generation,
        mapped: 4096,
        legacy: Vec::new(),
    };
    client.call(commit, &[memory.as_fd()]).expect("made");
    let persist = Persist::Yes;
    call(
        client,
        Request::Persist {
            name: name(text),
            persist,
        },
    );
    call(client, Request::Release { generation });
}

fn list_one(client: &mut Client, n: usize) -> Option<Reply> {
    let name = name(&format!("bench/{n}"));
    client
        .call(Request::Show { name }, &[])
        .ok()
        .map(|(reply, _)| reply)
}

fn references(client: &mut Client, text: &str) -> u64 {
    match call(client, Request::Show { name: name(text) }) {
        Reply::Entries { entries, .. } => entries[0].references,
        reply => panic!("{reply:?}"),
    }
}

fn list(client: &mut Client) -> (usize, usize) {
    let (mut count, mut pages, mut after) = (0, 0, None);
    loop {
        let Reply::Entries { entries, next } = call(client, Request::List { after, all: false })
        else {
            panic!("no list");
        };
        count += entries.len();
        pages += 1;
        match next {
            Some(next) => after = Some(next),
            None => return (count, pages),
        }
    }
}

fn status(client: &mut Client) -> Status {
    match call(client, Request::Status) {
        Reply::Status(status) => status,
        reply => panic!("{reply:?}"),
    }
}

fn resident(client: &mut Client) -> String {
    let status = status(client);
    let of = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = text
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<f64>().ok())
            .unwrap_or(f64::NAN)
            / 1024.0
    };
    format!(
        "keeper {:.1} MiB, standby {:.1} MiB",
        of(status.pid),
        of(status.standby)
    )
}

/// Processor time of the keeper so far.
fn cpu_ms(client: &mut Client) -> f64 {
    let pid = status(client).pid;
    processes::processor_time(pid).as_secs_f64() * 1e3
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

fn ms(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

fn report(what: &str, figure: &str) {
    println!("{what:<58} {figure}");
}
