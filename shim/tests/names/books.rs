//! What the keeper says of a storm's names, and what it is to say.

use std::collections::{BTreeMap, BTreeSet};

use crate::keeper::until;
use crate::storm::{Process, Storm};

impl Storm {
    /// What nobody holds and nothing keeps is gone.
    pub fn settle(&mut self) {
        let held: BTreeSet<usize> = self.processes.iter().flat_map(Process::made).collect();
        let made = &self.made;
        let lives = |which: &usize| made[*which].kept || held.contains(which);
        self.live.retain(|_, which| lives(which));
    }

    /// Everybody has the bytes that it is to have.
    pub fn check_bytes(&mut self) {
        for process in &mut self.processes {
            for opened in &process.open {
                let made = &self.made[opened.made];
                let sum = process
                    .actor
                    .must(&format!("sum {} {}", opened.at, made.bytes));
                assert_eq!(sum, (u64::from(made.byte) * made.bytes).to_string());
            }
        }
    }

    /// The keeper says of each name that can be opened or that somebody holds whether it
    /// can be opened, whether it is kept, and who has it how often.
    pub fn check_books(&mut self) {
        self.settle();
        let (expected, mut books) = (self.expected(), None);
        self.said.push(format!("expected: {expected:#?}"));
        until("the keeper's books are what is held", || {
            books = self.books();
            books.as_ref() == Some(&expected)
        });
        self.said.pop();
    }

    fn expected(&self) -> Vec<String> {
        let live: BTreeSet<usize> = self.live.values().copied().collect();
        let mut held: BTreeMap<usize, BTreeMap<u64, u64>> = BTreeMap::new();
        for process in &self.processes {
            // Openings of one kind share a mapping, and a lease.
            let mappings: BTreeSet<_> = process.open.iter().map(|o| (o.made, o.write)).collect();
            for (made, _) in mappings {
                let holders = held.entry(made).or_default();
                *holders.entry(process.actor.pid().into()).or_default() += 1;
            }
        }
        let all: BTreeSet<usize> = live.iter().chain(held.keys()).copied().collect();
        let line = |which: usize| {
            let made = &self.made[which];
            let state = match (live.contains(&which), made.sealed) {
                (true, true) => "sealed",
                (true, false) => "ready",
                (false, _) => "deleted",
            };
            let kept = made.kept && live.contains(&which);
            let holders = held.get(&which).cloned().unwrap_or_default();
            format!(
                "{} {} {state} {kept} {holders:?}",
                made.name, made.generation
            )
        };
        let mut lines: Vec<String> = all.into_iter().map(line).collect();
        lines.sort();
        lines
    }

    pub fn books(&self) -> Option<Vec<String>> {
        let said = self.place.keeper.verb(&["ls", "--all", "--json"])?;
        let line = |line: &str| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
            let mut holders: BTreeMap<u64, u64> = BTreeMap::new();
            for holder in entry["holders"].as_array().unwrap() {
                let count = holder["references"].as_u64().unwrap();
                *holders.entry(holder["pid"].as_u64().unwrap()).or_default() += count;
            }
            assert_eq!(entry["references"].as_u64(), Some(holders.values().sum()));
            let (name, state, kept) = (text("name"), text("state"), &entry["persist"]);
            format!(
                "{name} {:.8} {state} {kept} {holders:?}",
                text("generation")
            )
        };
        let mut lines: Vec<String> = said.lines().map(line).collect();
        lines.sort();
        Some(lines)
    }
}
