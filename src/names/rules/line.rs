//! Rules in a line: `key=value,key=value; key=value,...`. A key that can be true
//! may stand alone.

use super::keys::{Draft, show};
use super::{Facts, Rule};
use crate::error::{Error, Result};

/// Most rules; each allocation is held against all of them.
pub const MOST_RULES: usize = 1000;

/// Reads all rules.
pub fn read(text: &str, facts: &Facts) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    let written = text.split(';').map(str::trim);
    for (index, text) in written.filter(|text| !text.is_empty()).enumerate() {
        if index == MOST_RULES {
            return Err(Error::new(format!("more than {MOST_RULES} rules")));
        }
        let read = rule(text, facts);
        let numbered = |error| Error::new(format!("rule {}: {error}", index + 1));
        rules.push(read.map_err(numbered)?);
    }
    Ok(rules)
}

fn rule(text: &str, facts: &Facts) -> Result<Rule> {
    const FLAGS: [&str; 3] = ["read-only", "zeroed", "persist"];
    let mut draft = Draft::default();
    for item in text.split(',').map(str::trim) {
        match item.split_once('=') {
            Some((key, value)) => draft.set(key.trim(), value.trim())?,
            None if FLAGS.contains(&item) => draft.set(item, "true")?,
            None => {
                return Err(Error::new(format!(
                    "\"{}\" is not understood; accepted: key=value, {}",
                    show(item),
                    FLAGS.join(", ")
                )));
            }
        }
    }
    draft.finish(facts)
}
