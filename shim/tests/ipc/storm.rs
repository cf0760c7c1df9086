//! Processes that export, open, free and close at random, and are killed, as is
//! the keeper: nobody's bytes change under them, and nothing is left at the end.

use crate::MIB;
use crate::actor::{Actor, Place};
use crate::keeper::until;
use crate::random::Random;

/// Operations of a run; `MEMCUDA_IPC_OPS` asks for more, `MEMCUDA_IPC_SEED` for others.
const OPERATIONS: u64 = 250;
const PROCESSES: usize = 3;

/// What an exporter has.
struct Made {
    at: String,
    bytes: u64,
    number: u64,
    handle: String,
}

/// What an importer has open.
struct Open {
    at: String,
    bytes: u64,
    number: u64,
}

struct Process {
    actor: Actor,
    made: Vec<Made>,
    open: Vec<Open>,
}

impl Process {
    fn new(place: &Place) -> Self {
        Self {
            actor: place.actor(),
            made: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Everything that it has is as it was written.
    fn check(&mut self) {
        let made = self.made.iter().map(|m| (&m.at, m.bytes, m.number));
        let open = self.open.iter().map(|o| (&o.at, o.bytes, o.number));
        for (at, bytes, number) in made.chain(open) {
            assert!(self.actor.has(at, bytes, number), "{at} {bytes} {number}");
        }
    }
}

/// The keeper is killed, or started anew, while all of them ask it for something.
fn in_the_midst(place: &Place, all: &mut [Process], random: &mut Random, number: u64) {
    let handles: Vec<_> = all
        .iter()
        .map(|process| process.made.last())
        .map(|made| made.map(|made| (made.handle.clone(), made.bytes, made.number)))
        .collect();
    let mut asked = Vec::new();
    for (who, process) in all.iter_mut().enumerate() {
        let other = handles[(who + 1) % PROCESSES].clone();
        match (random.below(3), other) {
            (0, Some((handle, bytes, number))) => {
                process.actor.tell(&format!("open {handle}"));
                asked.push(Some((handle, bytes, number, true)));
            }
            (1, _) => {
                let bytes = 2 * MIB;
                let at = process.actor.filled(bytes, number);
                process.actor.tell(&format!("get {at}"));
                asked.push(Some((at, bytes, number, false)));
            }
            _ => asked.push(None),
        }
    }
    match random.below(2) {
        0 => place.keeper.kill(),
        _ => drop(place.keeper.verb(&["keeper", "restart"])),
    }
    for (process, asked) in all.iter_mut().zip(asked) {
        let Some((what, bytes, number, opens)) = asked else {
            continue;
        };
        let answer = process.actor.heard();
        let given = answer.strip_prefix("0 ").expect(&answer).to_owned();
        match opens {
            true => process.open.push(Open {
                at: given,
                bytes,
                number,
            }),
            false => process.made.push(Made {
                at: what,
                bytes,
                number,
                handle: given,
            }),
        }
    }
}

#[test]
fn nothing_changes_under_anybody_and_nothing_is_left() {
    let operations = std::env::var("MEMCUDA_IPC_OPS").map_or(OPERATIONS, |n| n.parse().unwrap());
    let place = Place::with_keeper();
    let seed = std::env::var("MEMCUDA_IPC_SEED").map_or(1, |n| n.parse().unwrap());
    let mut random = Random::new(seed);
    let mut all: Vec<Process> = (0..PROCESSES).map(|_| Process::new(&place)).collect();
    let (mut opened, mut killed, mut keepers) = (0, 0, 0);
    for number in 0..operations {
        let who = random.below(PROCESSES as u64) as usize;
        let process = &mut all[who];
        match random.below(100) {
            0..30 => {
                let bytes = [1000, 300 << 10, 2 * MIB, 5 * MIB][random.below(4) as usize];
                let at = process.actor.filled(bytes, number);
                let handle = process.actor.handle(&at);
                process.made.push(Made {
                    at,
                    bytes,
                    number,
                    handle,
                });
            }
            30..60 => {
                let from = (who + 1 + random.below(PROCESSES as u64 - 1) as usize) % PROCESSES;
                let Some(made) = all[from].made.last() else {
                    continue;
                };
                let (handle, bytes, number) = (made.handle.clone(), made.bytes, made.number);
                let process = &mut all[who];
                let at = process.actor.open(&handle);
                process.open.push(Open { at, bytes, number });
                opened += 1;
            }
            60..75 => {
                if !process.made.is_empty() {
                    let which = random.below(process.made.len() as u64) as usize;
                    let made = process.made.swap_remove(which);
                    process.actor.free(&made.at);
                }
            }
            75..88 => {
                if !process.open.is_empty() {
                    let which = random.below(process.open.len() as u64) as usize;
                    let open = process.open.swap_remove(which);
                    process.actor.close(&open.at);
                }
            }
            88..94 => process.check(),
            94..98 => {
                std::mem::replace(process, Process::new(&place))
                    .actor
                    .kill();
                killed += 1;
            }
            _ => {
                in_the_midst(&place, &mut all, &mut random, number);
                keepers += 1;
            }
        }
    }
    all.iter_mut().for_each(Process::check);
    for process in &mut all {
        for open in process.open.drain(..) {
            process.actor.close(&open.at);
        }
    }
    for process in &mut all {
        for made in process.made.drain(..) {
            process.actor.free(&made.at);
        }
    }
    let mut status = String::new();
    until("nothing is left at the keeper", || {
        status = place
            .keeper
            .verb(&["keeper", "status", "--json"])
            .unwrap_or_default();
        let none = [
            r#""exports":0,"#,
            r#""references":0,"#,
            r#""held_bytes":0,"#,
        ];
        none.iter().all(|none| status.contains(none))
    });
    for process in all {
        process.actor.end();
    }
    println!(
        "{operations} operations: {opened} opens, {killed} processes and {keepers} keepers killed"
    );
    assert!(opened > 20 && killed > 0 && keepers > 0);
}
