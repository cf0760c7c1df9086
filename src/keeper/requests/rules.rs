//! The file of access rules: which rights, and whose. Users and groups go by the host's
//! files, not by a directory service; numbers always do. Checks no request.

use std::collections::HashSet;
use std::fs;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::names::{Name, Pattern};
use crate::rules_file;
use crate::units::parse_size;

/// What may be done with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// Open it, and see it in lists.
    pub open: bool,
    /// Open it for writing, and seal it.
    pub write: bool,
    /// Make it, and persist it.
    pub create: bool,
    /// Delete it.
    pub delete: bool,
}

impl Rights {
    /// All of them.
    pub const ALL: Self = Self {
        open: true,
        write: true,
        create: true,
        delete: true,
    };

    /// Any at all?
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// One of them.
pub struct Rule {
    /// The names that it is about.
    pub names: Pattern,
    /// What it allows.
    pub rights: Rights,
    /// Most physical bytes that each of its users may make under it.
    pub quota: Option<u64>,
    users: HashSet<u32>,
    groups: HashSet<u32>,
}

impl Rule {
    /// Is this user one of its, or this group?
    pub fn is_for(&self, uid: u32, gid: u32) -> bool {
        self.users.contains(&uid) || self.groups.contains(&gid)
    }

    /// Is it about this name?
    pub fn is_about(&self, name: &Name) -> bool {
        self.names.holds(name.as_str())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    access: Vec<TextRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextRule {
    names: String,
    #[serde(default)]
    users: Vec<toml::Value>,
    #[serde(default)]
    groups: Vec<toml::Value>,
    allow: Vec<String>,
    quota: Option<String>,
}

enum Who<'a> {
    Number(u32),
    Name(&'a str),
}

impl<'a> Who<'a> {
    fn of(key: &str, value: &'a toml::Value) -> Result<Self> {
        let known = match value {
            toml::Value::Integer(number) => u32::try_from(*number).ok().map(Self::Number),
            toml::Value::String(name) => Some(Self::Name(name)),
            _ => None,
        };
        known.ok_or_else(|| {
            let shown = match value {
                toml::Value::Integer(number) => number.to_string(),
                other => format!("a {}", other.type_str()),
            };
            let accepted = format!("accepted: a name, or a number from 0 to {}", u32::MAX);
            Error::new(format!("{key}: {shown} is nobody; {accepted}"))
        })
    }
}

/// All rules of a text.
pub fn parse(text: &str) -> Result<Vec<Rule>> {
    parse_with(text, &Files::read())
}

fn parse_with(text: &str, files: &Files) -> Result<Vec<Rule>> {
    let wrong = |error| Error::new(rules_file::where_and_why(text, &error));
    let text: Text = toml::from_str(text).map_err(wrong)?;
    let rules = text.access.into_iter();
    rules.map(|text| rule(text, files)).collect()
}

fn rule(text: TextRule, files: &Files) -> Result<Rule> {
    let names = names(text.names)?;
    let mut rule = Rule {
        users: HashSet::new(),
        groups: HashSet::new(),
        rights: Rights::default(),
        quota: None,
        names,
    };
    for who in &text.users {
        rule.users.insert(match Who::of("users", who)? {
            Who::Number(uid) => uid,
            Who::Name(name) => files.user_id(name).ok_or_else(|| unknown("user", name))?,
        });
    }
    for who in &text.groups {
        let gid = match Who::of("groups", who)? {
            Who::Number(gid) => gid,
            Who::Name(name) => files.group_id(name).ok_or_else(|| unknown("group", name))?,
        };
        rule.groups.insert(gid);
        rule.users.extend(files.members(gid));
    }
    for right in &text.allow {
        match right.as_str() {
            "open" => rule.rights.open = true,
            "write" => rule.rights.write = true,
            "create" => rule.rights.create = true,
            "delete" => rule.rights.delete = true,
            other => {
                return Err(Error::new(format!(
                    "allow = \"{}\" is not known; accepted: open, write, create, delete",
                    other.escape_debug()
                )));
            }
        }
    }
    if let Some(quota) = &text.quota {
        rule.quota = Some(parse_size(quota).ok_or_else(|| {
            Error::new(format!(
                "quota = \"{}\" is no size; accepted: a number and a unit, like 10GiB",
                quota.escape_debug()
            ))
        })?);
    }
    if rule.users.is_empty() && rule.groups.is_empty() {
        return Err(Error::new(format!(
            "the rule for \"{}\" is for nobody; accepted: users, groups, or both",
            rule.names.to_string().escape_debug()
        )));
    }
    Ok(rule)
}

/// The pattern of a rule; none that holds for no name.
fn names(text: String) -> Result<Pattern> {
    let fits = text
        .bytes()
        .all(|byte| Name::may_have(byte) || b"*?".contains(&byte));
    let shown: String = text.escape_debug().take(60).collect();
    let pattern = Pattern::new(text).filter(|_| fits);
    pattern.ok_or_else(|| {
        Error::new(format!(
            "names = \"{shown}\" is none; accepted: a name (letters, digits and . _ - / : + @ =), with * and ?"
        ))
    })
}

/// That a user or a group is not there.
pub fn unknown(what: &str, name: &str) -> Error {
    Error::new(format!(
        "there is no {what} \"{}\" in this host's files; accepted: its name there, or a number",
        name.escape_debug()
    ))
}

/// A group's number, by its name or itself.
pub fn group_id(name: &str) -> Option<u32> {
    Files::read().group_id(name)
}

/// The host's files of users and groups.
struct Files {
    users: String,
    groups: String,
}

impl Files {
    fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            users: text("/etc/passwd"),
            groups: text("/etc/group"),
        }
    }

    fn user_id(&self, name: &str) -> Option<u32> {
        field(&self.users, name, 2).unwrap_or(name).parse().ok()
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        field(&self.groups, name, 2).unwrap_or(name).parse().ok()
    }

    /// The users whom the file names as a group's; those of whom it is the first
    /// group are known by that.
    fn members(&self, gid: u32) -> impl Iterator<Item = u32> {
        let lines = self.groups.lines().map(|line| line.split(':'));
        let its = lines.filter_map(move |mut fields| {
            let number = fields.nth(2)?.parse();
            (number == Ok(gid)).then(|| fields.next()).flatten()
        });
        its.flat_map(|names| names.split(','))
            .filter_map(|name| self.user_id(name))
    }
}

/// A field of the line that begins with this name.
fn field<'a>(file: &'a str, name: &str, at: usize) -> Option<&'a str> {
    let mut lines = file.lines();
    let line = lines.find(|line| line.split(':').next() == Some(name));
    line?.split(':').nth(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_user_and_no_name_is_said_in_a_line() {
        let rule = |names: &str, who: &str| {
            let text = format!("[[access]]\nnames = \"{names}\"\n{who}\nallow = [\"open\"]\n");
            parse(&text).map(drop).map_err(|error| error.to_string())
        };
        let number = "is nobody; accepted: a name, or a number from 0 to 4294967295";
        let wrong = |who: &str| rule("a", who).unwrap_err();
        assert_eq!(wrong("users = [-1]"), format!("users: -1 {number}"));
        let large = format!("groups: 99999999999 {number}");
        assert_eq!(wrong("groups = [1, 99999999999]"), large);
        assert_eq!(
            wrong("users = [true]"),
            format!("users: a boolean {number}")
        );
        for good in ["a", "cm*", "/w/?.0:q@r=3", "*"] {
            assert_eq!(rule(good, "users = [4294967295]"), Ok(()), "{good}");
        }
        for never in ["a b", "", "w*\\n"] {
            let said = rule(never, "users = [0]").unwrap_err();
            assert!(said.contains("accepted: a name (letters"), "{said}");
        }
    }

    #[test]
    fn a_group_is_its_members_by_its_name_and_by_its_number() {
        let files = Files {
            users: "ada:x:1001:100::/:\nbob:x:1002:100::/:\ncy:x:1003:1007::/:\n".to_owned(),
            groups: "users:x:100:\nml:x:1007:ada,bob,nobody-here\nnone:x:1008:\n".to_owned(),
        };
        for group in ["\"ml\"", "1007"] {
            let text = format!("[[access]]\nnames = \"a\"\ngroups = [{group}]\nallow = []\n");
            let rules = parse_with(&text, &files).unwrap();
            let is_for = |uid, gid| rules[0].is_for(uid, gid);
            assert!(is_for(1001, 100) && is_for(1002, 100), "{group}: a member");
            assert!(is_for(1003, 1007), "{group}: its first group");
            assert!(!is_for(1003, 100) && !is_for(1004, 1008), "{group}");
        }
    }

    #[test]
    fn no_text_of_rules_does_harm() {
        let good = "[[access]]\nnames = \"a*b?\"\nusers = [1, \"root\"]\ngroups = [2]\nallow = [\"open\"]\nquota = \"10GiB\"\n";
        assert_eq!(parse(good).unwrap().len(), 1);
        let mut state = 7u32;
        let mut dice = |sides: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % sides
        };
        let mut refused = 0;
        for _ in 0..5000 {
            let mut bytes = good.as_bytes().to_vec();
            for _ in 0..=dice(6) {
                let (at, byte) = (dice(bytes.len()), b"[]\"=\n*,9\\\0x-"[dice(12)]);
                match dice(3) {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => drop(bytes.remove(at)),
                }
            }
            if let Err(error) = parse(&String::from_utf8_lossy(&bytes)) {
                assert!(!error.to_string().contains('\n'), "{error}");
                refused += 1;
            }
        }
        assert!(refused > 2000, "{refused}");
    }
}
