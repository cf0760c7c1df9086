//! Counts as expected and as found: when do they differ too much?

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// How far a count may be from the expected one, in percent; two instructions
/// are always allowed.
pub const TOLERANCE: u64 = 3;

/// Instructions by what was counted.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Notes a count, in the place of an earlier one.
    pub fn add(&mut self, name: &str, count: u64) {
        self.0.insert(name.to_owned(), count);
    }

    /// The count of one thing.
    pub fn of(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "# Instructions of a malloc and its free; make bench-count compares and updates."
        )?;
        let mut counts = self.iter();
        counts.try_for_each(|(name, count)| writeln!(f, "{name} = {count}"))
    }
}

impl FromStr for Counts {
    type Err = String;

    /// Lines of `name = count`; `#` begins a remark.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut counts = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.split_once(" = ").and_then(|(name, count)| {
                let count = count.parse().ok().filter(|&count| count > 0)?;
                Some((name, count))
            });
            let (name, count) = parsed
                .ok_or_else(|| format!("line {}: {line:?}; accepted: NAME = COUNT", at + 1))?;
            counts.add(name, count);
        }
        Ok(counts)
    }
}

/// What became of each count.
pub struct Verdict(Vec<Row>);

struct Row {
    name: String,
    expected: Option<u64>,
    found: Option<u64>,
}

impl Row {
    /// What is wrong with it.
    fn failure(&self) -> Option<String> {
        let name = &self.name;
        match (self.expected, self.found) {
            (Some(expected), Some(found)) => {
                let most = (expected * TOLERANCE / 100).max(2);
                if found.abs_diff(expected) <= most {
                    return None;
                }
                let what = if found > expected {
                    "more; a regression, or to be written down with --update where it is meant"
                } else {
                    "fewer; write it down with --update"
                };
                Some(format!(
                    "{name}: {found} instructions, {expected} expected: {:.1} % {what}",
                    100.0 * found.abs_diff(expected) as f64 / expected as f64
                ))
            }
            (Some(_), None) => Some(format!("{name}: expected and not counted")),
            (None, _) => Some(format!("{name}: counted and not in the file")),
        }
    }
}

impl Verdict {
    /// Compares.
    pub fn new(expected: &Counts, found: &Counts) -> Self {
        let names: std::collections::BTreeSet<&str> = expected
            .iter()
            .chain(found.iter())
            .map(|(name, _)| name)
            .collect();
        let row = |name: &str| Row {
            name: name.to_owned(),
            expected: expected.of(name),
            found: found.of(name),
        };
        Self(names.into_iter().map(row).collect())
    }

    /// Is every count as expected?
    pub fn passes(&self) -> bool {
        self.failures().is_empty()
    }

    /// What is not, one sentence each.
    pub fn failures(&self) -> Vec<String> {
        self.0.iter().filter_map(Row::failure).collect()
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<44} {:>9} {:>9}",
            "instructions of a pair", "expected", "found"
        )?;
        for row in &self.0 {
            let number = |count: Option<u64>| count.map_or("-".to_owned(), |n| n.to_string());
            writeln!(
                f,
                "{:<44} {:>9} {:>9}  {}",
                row.name,
                number(row.expected),
                number(row.found),
                if row.failure().is_none() { "" } else { "FAIL" }
            )?;
        }
        Ok(())
    }
}
