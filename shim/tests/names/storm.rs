//! Processes that make, open, seal, close and delete names at random, one after another
//! and all at once, while they, the keeper and its standby are killed: everybody has the
//! bytes of what it was given, and the keeper's books are what is held.

use std::collections::{BTreeMap, BTreeSet};

use crate::actor::{Actor, Place};
use crate::keeper::{signal, until};
use crate::random::Random;
use crate::{EXISTS, MISMATCH, NOT_FOUND, SEALED, field};

/// Steps of a run; `MEMCUDA_NAMES_STEPS` asks for more, `MEMCUDA_NAMES_SEED` for others.
const STEPS: u64 = 400;
const PROCESSES: usize = 3;
const NAMES: u64 = 6;
const SIZES: [u64; 4] = [1, 4096, 2 << 20, (3 << 20) + 5];
const READ_ONLY: u64 = 1;
const PERSIST: u64 = 8;

/// One generation of a name.
pub struct Made {
    pub name: String,
    pub generation: String,
    pub bytes: u64,
    /// What each of its bytes is.
    pub byte: u8,
    /// Does it stay without a holder?
    pub kept: bool,
    pub sealed: bool,
}

/// An opening, in a process.
pub struct Opened {
    pub handle: String,
    pub at: String,
    pub made: usize,
    pub write: bool,
}

pub struct Process {
    pub actor: Actor,
    pub open: Vec<Opened>,
}

pub struct Storm {
    pub place: Place,
    pub processes: Vec<Process>,
    /// All that was ever made.
    pub made: Vec<Made>,
    /// Those of them that can be opened.
    pub live: BTreeMap<String, usize>,
    pub random: Random,
    pub said: Vec<String>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let place = Place::with_keeper();
        let processes = (0..PROCESSES).map(|_| Process::new(&place)).collect();
        Self {
            place,
            processes,
            made: Vec::new(),
            live: BTreeMap::new(),
            random: Random::new(seed),
            said: Vec::new(),
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    /// A name, what it is now, and a size that mostly fits.
    fn name(&mut self) -> (String, Option<usize>, u64) {
        let name = format!("storm/{}", self.below(NAMES));
        let there = self.live.get(&name).copied();
        let other = SIZES[self.below(SIZES.len() as u64) as usize];
        let fits = self.below(5) > 0;
        let bytes = there.filter(|_| fits).map(|there| self.made[there].bytes);
        (name, there, bytes.unwrap_or(other))
    }

    fn say(&mut self, who: usize, line: &str) -> String {
        self.said.push(format!("{who}: {line}"));
        let answer = self.processes[who].actor.say(line);
        self.said.push(format!("   {answer}"));
        answer
    }

    /// What a process was given: something that is known, or a new generation, which it
    /// fills.
    fn enter(&mut self, who: usize, answer: &str, write: bool, kept: bool) {
        let handle = answer.split(' ').nth(1).unwrap().to_owned();
        let about = self.say(who, &format!("describe {handle}"));
        let of = |name| field(&about, name).to_owned();
        let (at, name, generation) = (of("address"), of("name"), of("generation"));
        let mut known = self.made.iter();
        let known = known.position(|made| made.name == name && made.generation == generation);
        let made = known.unwrap_or(self.made.len());
        if known.is_none() {
            let (byte, bytes) = (self.below(255) as u8 + 1, of("bytes").parse().unwrap());
            self.processes[who].actor.set(&at, byte, bytes);
            let sealed = false;
            self.live.insert(name.clone(), made);
            self.made.push(Made {
                name,
                generation,
                bytes,
                byte,
                kept,
                sealed,
            });
        }
        let open = &mut self.processes[who].open;
        open.push(Opened {
            handle,
            at,
            made,
            write,
        });
    }

    /// Opens or makes a name.
    fn open(&mut self, who: usize) {
        let (name, there, bytes) = self.name();
        let verb = ["create", "open", "either"][self.below(3) as usize];
        let kept = self.below(4) == 0;
        let write = verb != "open" || self.below(2) == 0;
        let flags = if kept { PERSIST } else { 0 } | if write { 0 } else { READ_ONLY };
        let expected = match (verb, there.map(|there| &self.made[there])) {
            ("create", Some(_)) => EXISTS,
            ("open", None) => NOT_FOUND,
            (_, Some(made)) if made.bytes != bytes => MISMATCH,
            (_, Some(made)) if made.sealed && write => SEALED,
            _ => 0,
        };
        let answer = self.say(who, &format!("{verb} {name} bytes={bytes} flags={flags}"));
        assert_eq!(code(&answer), expected);
        if expected == 0 {
            self.enter(who, &answer, write, kept);
        }
    }

    /// All ask for one name at once; where `keeper`, that is killed meanwhile, and where
    /// `victim`, one of them.
    fn race(&mut self, keeper: bool, victim: Option<usize>) {
        let (name, there, bytes) = self.name();
        let all = self.below(4);
        let verb = |storm: &mut Self| match all {
            0 => "create",
            1 => "open",
            2 => "either",
            _ => ["either", "delete"][storm.below(2) as usize],
        };
        let verbs: Vec<&str> = (0..PROCESSES).map(|_| verb(self)).collect();
        for (process, verb) in self.processes.iter_mut().zip(&verbs) {
            process.actor.tell(&format!("{verb} {name} bytes={bytes}"));
        }
        self.said.push(format!(
            "all, {keeper}, {victim:?}: {verbs:?} {name} {bytes}"
        ));
        if keeper {
            self.kill_keeper();
        }
        if let Some(victim) = victim {
            self.kill(victim);
        }
        let mut given = 0;
        for who in (0..PROCESSES).filter(|who| Some(*who) != victim) {
            let answer = self.processes[who].actor.heard();
            self.said.push(format!("   {who}: {answer}"));
            match (code(&answer), verbs[who]) {
                (0, "delete") => {}
                (0, _) => {
                    given += 1;
                    self.enter(who, &answer, true, false);
                }
                (EXISTS, "create") | (NOT_FOUND, "open" | "delete") => {}
                (MISMATCH | SEALED, "open" | "either") => {}
                (code, _) => panic!("{code}: {}", self.processes[who].actor.message()),
            }
        }
        let expected = match (all, there.map(|there| &self.made[there])) {
            (0, Some(_)) | (1, None) => Some(0),
            (0, None) if victim.is_none() => Some(1),
            (1 | 2, Some(made)) if made.sealed || made.bytes != bytes => Some(0),
            (1, Some(made)) if !made.kept && victim.is_some() => None,
            (1, _) | (2, None) => Some(PROCESSES - victim.iter().count()),
            _ => None,
        };
        assert!(
            expected.is_none_or(|expected| given == expected),
            "{given} {expected:?}"
        );
        if keeper || victim.is_some() || all == 3 {
            self.look(&name);
        }
    }

    /// What a name is after a race.
    fn look(&mut self, name: &str) {
        let mut now = None;
        until("the name is one that somebody has, or none", || {
            let shown = self.say(0, &format!("show {name}"));
            let made =
                |made: &Made| made.name == name && made.generation == field(&shown, "generation");
            now = (code(&shown) == 0).then(|| self.made.iter().position(made));
            let held: BTreeSet<usize> = self.processes.iter().flat_map(Process::made).collect();
            let lives = |made: usize| self.made[made].kept || held.contains(&made);
            now.is_none_or(|made| made.is_some_and(lives))
        });
        self.live.remove(name);
        self.live
            .extend(now.flatten().map(|made| (name.to_owned(), made)));
    }

    fn close(&mut self, who: usize) {
        let count = self.processes[who].open.len() as u64;
        if count > 0 {
            let which = self.below(count) as usize;
            let opened = self.processes[who].open.swap_remove(which);
            let answer = self.say(who, &format!("close {}", opened.handle));
            assert_eq!(code(&answer), 0);
        }
    }

    fn seal(&mut self, who: usize) {
        let open = &self.processes[who].open;
        let Some(opened) = open.iter().find(|opened| opened.write) else {
            return;
        };
        let (made, line) = (opened.made, format!("seal {}", opened.handle));
        let deleted = self.live.get(&self.made[made].name) != Some(&made);
        let answer = self.say(who, &line);
        match deleted {
            true => assert!(matches!(code(&answer), 0 | NOT_FOUND)),
            false => assert_eq!(code(&answer), 0),
        }
        self.made[made].sealed |= !deleted;
    }

    /// Deletes a name, or says whether it is kept.
    fn change(&mut self, who: usize) {
        let (name, there, _) = self.name();
        let (delete, kept) = (self.below(2) == 0, self.below(2) == 0);
        let answer = match (delete, kept) {
            (true, _) => self.say(who, &format!("delete {name}")),
            (false, true) => self.say(who, &format!("persist {name} 3600")),
            (false, false) => self.say(who, &format!("persist {name} 0")),
        };
        assert_eq!(code(&answer), if there.is_some() { 0 } else { NOT_FOUND });
        match there {
            Some(_) if delete => drop(self.live.remove(&name)),
            Some(there) => self.made[there].kept = kept,
            None => {}
        }
    }

    /// A process is killed; another one comes in its place.
    fn kill(&mut self, who: usize) {
        self.said.push(format!("{who} is killed"));
        let fresh = Process::new(&self.place);
        std::mem::replace(&mut self.processes[who], fresh)
            .actor
            .kill();
    }

    fn kill_keeper(&mut self) {
        let which = self.below(4);
        self.said.push(format!("keeper {which}"));
        match which {
            0 => signal(self.place.keeper.pids()[1], libc::SIGKILL),
            1 => drop(self.place.keeper.verb(&["keeper", "restart"])),
            _ => self.place.keeper.kill(),
        }
    }
}

impl Process {
    fn new(place: &Place) -> Self {
        Self {
            actor: place.actor(),
            open: Vec::new(),
        }
    }

    pub fn made(&self) -> impl Iterator<Item = usize> {
        self.open.iter().map(|opened| opened.made)
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.said.len().saturating_sub(60);
            eprintln!(
                "{}\nbooks: {:#?}",
                self.said[last..].join("\n"),
                self.books()
            );
        }
    }
}

fn code(answer: &str) -> i32 {
    answer.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn everybody_has_the_bytes_of_its_name_and_the_books_are_what_is_held() {
    let number = |name| std::env::var(name).ok().map(|n: String| n.parse().unwrap());
    let steps = number("MEMCUDA_NAMES_STEPS").unwrap_or(STEPS);
    let mut storm = Storm::new(number("MEMCUDA_NAMES_SEED").unwrap_or(1));
    let (mut killed, mut keepers) = (0, 0);
    for _ in 0..steps {
        let who = storm.below(PROCESSES as u64) as usize;
        let chance = storm.below(100);
        match chance {
            0..35 => storm.open(who),
            35..55 => storm.close(who),
            55..65 => storm.change(who),
            65..70 => storm.seal(who),
            70..80 => storm.race(false, None),
            80..88 => storm.check_bytes(),
            88..91 => storm.kill(who),
            91..93 => storm.kill_keeper(),
            93..96 => storm.race(true, None),
            _ => storm.race(chance == 99, Some(who)),
        }
        killed += u64::from(matches!(chance, 88..91 | 96..));
        keepers += u64::from(matches!(chance, 91..96 | 99));
        if chance >= 88 {
            storm.check_books();
        }
        storm.settle();
    }
    storm.check_bytes();
    let made = storm.made.len();
    println!("{made} made, {killed} processes and {keepers} keepers killed");
    assert!(killed > 0 && keepers > 0 && made > 15);
    for who in 0..PROCESSES {
        while !storm.processes[who].open.is_empty() {
            storm.close(who);
        }
    }
    storm.settle();
    for name in std::mem::take(&mut storm.live).into_keys() {
        assert_eq!(code(&storm.say(0, &format!("persist {name} 0"))), 0);
    }
    storm.check_books();
    let status = storm
        .place
        .keeper
        .verb(&["keeper", "status", "--json"])
        .unwrap();
    for none in ["names", "dying", "references", "held_bytes"] {
        assert!(status.contains(&format!("\"{none}\":0,")), "{status}");
    }
    for process in storm.processes.drain(..) {
        process.actor.end();
    }
}
