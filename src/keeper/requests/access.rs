//! Who may do what with which names, and how many bytes: by rules (`rules`), and
//! without them a name is its keeper's user's, and root's.

use std::collections::HashMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::keeper::Refusal;
use crate::keeper::clients::process::Peer;
use crate::keeper::requests::rules::{self, Rights, Rule};
use crate::names::Name;
use crate::rules_file;
use crate::share::protocol::Code;
use crate::units::show_bytes;

/// The rules of a keeper.
pub struct Access {
    owner: u32,
    rules: Vec<Rule>,
    /// Physical bytes that a user made under a rule.
    made: HashMap<(usize, u32), u64>,
}

impl Access {
    /// The rules of this user's keeper: none, or those of a file.
    pub fn load(owner: u32, rules: Option<&Path>) -> Result<Self> {
        let Some(path) = rules else {
            return Self::parse(owner, "");
        };
        let text = rules_file::read(path).map_err(|error| Error::of_file(path, error))?;
        Self::parse(owner, &text).map_err(|error| Error::of_file(path, error))
    }

    /// From the text of such a file.
    pub fn parse(owner: u32, text: &str) -> Result<Self> {
        Ok(Self {
            owner,
            rules: rules::parse(text)?,
            made: HashMap::new(),
        })
    }

    /// Is this the keeper's own user, or root?
    pub fn is_own(&self, uid: u32) -> bool {
        uid == self.owner || uid == 0
    }

    /// May this peer say anything at all?
    pub fn serves(&self, peer: &Peer) -> bool {
        self.is_own(peer.uid)
            || self
                .rules
                .iter()
                .any(|rule| rule.is_for(peer.uid, peer.gid))
    }

    /// What this peer may do with this name.
    pub fn rights(&self, peer: &Peer, name: &Name) -> Rights {
        if self.is_own(peer.uid) {
            return Rights::ALL;
        }
        let rules = self.rules_of(peer.uid, peer.gid, name);
        rules.fold(Rights::default(), |sum, (_, rule)| Rights {
            open: sum.open | rule.rights.open,
            write: sum.write | rule.rights.write,
            create: sum.create | rule.rights.create,
            delete: sum.delete | rule.rights.delete,
        })
    }

    /// Would so many bytes more of a name be too many? The first rule with a
    /// quota that fits counts, also for the keeper's own user.
    pub fn check_quota(
        &self,
        uid: u32,
        gid: u32,
        name: &Name,
        more: u64,
    ) -> std::result::Result<(), Refusal> {
        let Some((at, quota)) = self.quota(uid, gid, name) else {
            return Ok(());
        };
        let made = self.made.get(&(at, uid)).copied().unwrap_or(0);
        if made.saturating_add(more) <= quota {
            return Ok(());
        }
        let message = format!(
            "user {uid} has made {} under {} and may have {}; {} more is too much",
            show_bytes(made),
            self.rules[at].names,
            show_bytes(quota),
            show_bytes(more)
        );
        Err(Refusal::new(Code::Quota, message))
    }

    /// So many bytes of a name were made.
    pub fn charge(&mut self, uid: u32, gid: u32, name: &Name, bytes: u64) {
        if let Some((at, _)) = self.quota(uid, gid, name) {
            *self.made.entry((at, uid)).or_insert(0) += bytes;
        }
    }

    /// They are gone.
    pub fn discharge(&mut self, uid: u32, gid: u32, name: &Name, bytes: u64) {
        if let Some((at, _)) = self.quota(uid, gid, name)
            && let Some(made) = self.made.get_mut(&(at, uid))
        {
            *made = made.saturating_sub(bytes);
        }
    }

    fn quota(&self, uid: u32, gid: u32, name: &Name) -> Option<(usize, u64)> {
        let mut rules = self.rules_of(uid, gid, name);
        rules.find_map(|(at, rule)| Some((at, rule.quota?)))
    }

    fn rules_of<'a>(
        &'a self,
        uid: u32,
        gid: u32,
        name: &'a Name,
    ) -> impl Iterator<Item = (usize, &'a Rule)> {
        let rules = self.rules.iter().enumerate();
        rules.filter(move |(_, rule)| rule.is_for(uid, gid) && rule.is_about(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gid: u32) -> Peer {
        Peer { pid: 1, uid, gid }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn without_rules_a_name_is_its_owners_and_roots() {
        let access = Access::load(1000, None).unwrap();
        assert_eq!(access.rights(&peer(1000, 5), &name("w")), Rights::ALL);
        assert_eq!(access.rights(&peer(0, 0), &name("w")), Rights::ALL);
        assert!(!access.rights(&peer(1001, 1000), &name("w")).any());
        assert!(!access.serves(&peer(1001, 1000)));
    }

    #[test]
    fn rights_are_the_sum_of_the_rules_and_the_quota_is_the_first() {
        let mut access = Access::parse(
            1000,
            r#"
            [[access]]
            names = "weights/*"
            users = [1001]
            groups = [70]
            allow = ["open"]
            [[access]]
            names = "weights/tmp-?"
            users = [1001, "root"]
            allow = ["create", "write"]
            quota = "1MiB"
            "#,
        )
        .unwrap();
        let open = Rights {
            open: true,
            ..Rights::default()
        };
        assert_eq!(access.rights(&peer(1001, 1), &name("weights/a/b")), open);
        assert_eq!(access.rights(&peer(5, 70), &name("weights/a")), open);
        assert!(!access.rights(&peer(1001, 1), &name("weight")).any());
        let tmp = access.rights(&peer(1001, 1), &name("weights/tmp-1"));
        assert!(tmp.open && tmp.create && tmp.write && !tmp.delete);
        let tmp = name("weights/tmp-1");
        access.charge(1001, 1, &tmp, 1 << 19);
        assert!(access.check_quota(1001, 1, &tmp, 1 << 19).is_ok());
        let refusal = access
            .check_quota(1001, 1, &tmp, (1 << 19) + 1)
            .unwrap_err();
        assert_eq!(refusal.code, Code::Quota);
        assert!(refusal.message.contains("512.0 KiB"), "{}", refusal.message);
        assert!(access.check_quota(0, 0, &tmp, 1 << 20).is_ok());
        access.discharge(1001, 1, &tmp, 1 << 19);
        assert!(access.check_quota(1001, 1, &tmp, 1 << 20).is_ok());
        assert!(access.check_quota(5, 70, &tmp, 1 << 40).is_ok());
    }

    #[test]
    fn a_wrong_rule_is_one_line_that_names_the_value() {
        for (text, value) in [
            ("[[access]]\nnames = \"a\"\nallow = []", "nobody"),
            (
                "[[access]]\nnames = \"a\"\nusers = [1]\nallow = [\"eat\"]",
                "eat",
            ),
            (
                "[[access]]\nnames = \"a\"\nusers = [\"no one here\"]\nallow = []",
                "no one here",
            ),
            (
                "[[access]]\nnames = \"a\"\nusers = [1]\nallow = []\nquota = \"much\"",
                "much",
            ),
            (
                "[[access]]\nnames = \"\"\nusers = [1]\nallow = []",
                "names = ",
            ),
            (
                "[[access]]\nname = \"a\"\nusers = [1]\nallow = []",
                "line 2: unknown field `name`",
            ),
            ("\n[[acess]]", "line 2: unknown field `acess`"),
            ("users", "line 1: "),
        ] {
            let Err(error) = Access::parse(0, text) else {
                panic!("{text} was taken");
            };
            let error = error.to_string();
            assert!(error.contains(value), "{error}");
            // Nor is it a picture of lines, made one.
            assert!(!error.contains(['\n', '|']), "{error}");
        }
    }
}
