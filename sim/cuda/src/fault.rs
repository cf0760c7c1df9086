//! Fault injection: which call of a name answers an error instead of doing
//! its work (`MEMCUDA_SIM_FAIL`).

use crate::abi::{Answer, Code};

#[derive(Default, Clone)]
pub struct Faults {
    rules: Vec<Rule>,
    /// Calls that failed so.
    failed: u64,
}

#[derive(Clone)]
struct Rule {
    /// A driver call with or without its version suffix, or `*`.
    name: String,
    when: When,
    code: Code,
    calls: u64,
}

#[derive(Clone)]
enum When {
    /// The n-th call, counted from 1.
    Once(u64),
    /// Every n-th call.
    Each(u64),
}

impl Faults {
    /// `cuMemCreate@3=2,cuMemMap%10=999,*@100=2`.
    pub fn parse(text: &str) -> Option<Faults> {
        text.split(',')
            .map(Rule::parse)
            .collect::<Option<_>>()
            .map(|rules| Faults { rules, failed: 0 })
    }

    /// How many calls have failed so.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Counts a call; the error when this one is to fail.
    pub fn check(&mut self, call: &str) -> Answer {
        let mut answer = Ok(());
        for rule in &mut self.rules {
            if rule.name != "*" && rule.name != call && rule.name != base_name(call) {
                continue;
            }
            rule.calls += 1;
            let hit = match rule.when {
                When::Once(n) => rule.calls == n,
                When::Each(n) => rule.calls.is_multiple_of(n),
            };
            if hit {
                answer = Err(rule.code);
            }
        }
        self.failed += u64::from(answer.is_err());
        answer
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Rule> {
        let (left, code) = text.trim().split_once('=')?;
        let (name, when, count) = match left.split_once('@') {
            Some((name, n)) => (name, When::Once as fn(u64) -> When, n),
            None => {
                let (name, n) = left.split_once('%')?;
                (name, When::Each as fn(u64) -> When, n)
            }
        };
        let count = count.parse().ok().filter(|n| *n > 0)?;
        let code = code.parse().ok().filter(|n| *n > 0)?;
        let known = name == "*" || (name.starts_with("cu") && crate::lookup::is_known(name));
        known.then(|| Rule {
            name: name.to_owned(),
            when: when(count),
            code: Code(code),
            calls: 0,
        })
    }
}

/// The name without `_ptsz`, `_ptds` and version suffix.
pub fn base_name(call: &str) -> &str {
    let name = call
        .strip_suffix("_ptsz")
        .or_else(|| call.strip_suffix("_ptds"))
        .unwrap_or(call);
    match name.rsplit_once("_v") {
        Some((base, digits)) if digits.len() == 1 && digits.as_bytes()[0].is_ascii_digit() => base,
        _ => name,
    }
}
