//! Rules in a TOML file: a table `[[rule]]` each, with the keys of the line.

use std::path::Path;

use toml::de::{DeArray, DeTable, DeValue};

use super::keys::Draft;
use super::line::MOST_RULES;
use super::{Facts, Rule};
use crate::error::{Error, Result};
use crate::rules_file;

/// Reads all rules of a file.
pub fn open(path: &Path, facts: &Facts) -> Result<Vec<Rule>> {
    read(&rules_file::read(path)?, facts)
}

/// Reads all rules.
pub fn read(text: &str, facts: &Facts) -> Result<Vec<Rule>> {
    let table = DeTable::parse(text).map_err(|error| {
        let said = rules_file::where_and_why(text, &error);
        Error::new(format!("{said}; accepted: TOML"))
    })?;
    let expected = || Error::new("accepted: one table [[rule]] for each rule, and nothing else");
    let mut rules = Vec::new();
    for (key, value) in table.get_ref() {
        let DeValue::Array(written) = value.get_ref() else {
            return Err(expected());
        };
        if key.get_ref() != "rule" {
            return Err(expected());
        }
        if written.len() > MOST_RULES {
            return Err(Error::new(format!("more than {MOST_RULES} rules")));
        }
        for (index, item) in written.iter().enumerate() {
            let DeValue::Table(written) = item.get_ref() else {
                return Err(expected());
            };
            let numbered = |error| Error::new(format!("rule {}: {error}", index + 1));
            rules.push(rule(written, facts).map_err(numbered)?);
        }
    }
    Ok(rules)
}

fn rule(table: &DeTable<'_>, facts: &Facts) -> Result<Rule> {
    let mut draft = Draft::default();
    for (key, value) in table {
        let name = key.get_ref();
        let text = plain(value.get_ref()).ok_or_else(|| {
            Error::new(format!(
                "{}: accepted: text, a number, true, false, or for a shape [1024, 512]",
                super::keys::show(name)
            ))
        })?;
        draft.set(name, &text)?;
    }
    draft.finish(facts)
}

/// A value as the line has it.
fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            Some(number.as_str().to_owned()).filter(|_| number.radix() == 10)
        }
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(extents) => joined(extents),
        _ => None,
    }
}

fn joined(extents: &DeArray<'_>) -> Option<String> {
    let extents = extents.iter().map(|extent| match extent.get_ref() {
        number @ DeValue::Integer(_) => plain(number),
        _ => None,
    });
    Some(extents.collect::<Option<Vec<_>>>()?.join("x"))
}
