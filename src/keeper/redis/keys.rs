//! The names of keys: those that others know, and ours under one prefix of
//! their own. Each begins with the namespace where there is one.

use crate::names::Name;

/// The keys of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

/// Ours, behind the namespace.
const OURS: &str = "memcuda:";
/// The key that tells of a namespace whether somebody publishes names there.
pub(super) const INDEX: &str = "memcuda:names";

impl Keys {
    /// Those of a namespace; of the bare keys where it is empty.
    pub fn new(namespace: &str) -> Self {
        let prefix = match namespace {
            "" => String::new(),
            namespace => format!("{namespace}:"),
        };
        Self { prefix }
    }

    /// What every key begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the hash of a name begins with.
    pub fn hashes(&self) -> String {
        format!("{}tensor:", self.prefix)
    }

    /// The hash of a name.
    pub fn hash(&self, name: &Name) -> String {
        format!("{}tensor:{name}", self.prefix)
    }

    /// Who publishes here; expires when it stops doing so.
    pub fn owner(&self) -> String {
        self.ours("owner")
    }

    /// The set of published names.
    pub fn index(&self) -> String {
        format!("{}{INDEX}", self.prefix)
    }

    /// The set of names that have a text at their own path, too.
    pub fn paths(&self) -> String {
        self.ours("paths")
    }

    /// Commands that were taken from a queue and are being carried out.
    pub fn taken(&self, queue: &str) -> String {
        self.ours(&format!("taken:{queue}"))
    }

    /// Of these, those that take long.
    pub fn making(&self, queue: &str) -> String {
        self.ours(&format!("making:{queue}"))
    }

    /// How often a command was taken up by one process after another.
    pub fn tries(&self) -> String {
        self.ours("tries")
    }

    /// What is remembered of a command while it is carried out.
    pub fn notes(&self) -> String {
        self.ours("notes")
    }

    /// Commands that could not be carried out, with why.
    pub fn aside(&self) -> String {
        self.ours("aside")
    }

    /// A queue that others know.
    pub fn queue(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// May an answer go to this list? Within the namespace, and to no key that
    /// this protocol uses itself.
    pub fn takes_answers(&self, key: &str) -> bool {
        const TAKEN: [&str; 6] = ["tensor:", "tensor_lifecycle", "cmd:", "sys:", "/", OURS];
        let Some(rest) = key.strip_prefix(&self.prefix) else {
            return false;
        };
        // A bare keeper must not write into what another namespace reserves.
        let behind = rest.split_once(':').map_or("", |(_, behind)| behind);
        let reserved = |text: &str| TAKEN.iter().any(|taken| text.starts_with(taken));
        !rest.is_empty() && rest.len() <= 512 && !reserved(rest) && !reserved(behind)
    }

    /// The path key of a name in the second protocol: a name that looks like a
    /// path outside the system's own ones.
    pub fn path(&self, name: &Name) -> Option<String> {
        let text = name.as_str();
        let system = ["/sys/", "/lock/"];
        let path = text.starts_with('/') && !system.iter().any(|own| text.starts_with(own));
        path.then(|| format!("{}{text}", self.prefix))
    }

    fn ours(&self, name: &str) -> String {
        format!("{}{OURS}{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_begins_with_the_namespace() {
        let name = Name::new("layer/0").unwrap();
        assert_eq!(Keys::new("").hash(&name), "tensor:layer/0");
        let keys = Keys::new("a");
        assert_eq!(keys.hash(&name), "a:tensor:layer/0");
        assert_eq!(keys.owner(), "a:memcuda:owner");
        assert_eq!(keys.queue("tensor:cmd"), "a:tensor:cmd");
        assert_eq!(keys.taken("tensor:cmd"), "a:memcuda:taken:tensor:cmd");
    }

    #[test]
    fn answers_go_to_no_key_of_the_protocol() {
        let bare = Keys::new("");
        for good in ["reply:7", "done:x", "me", "a:b:c"] {
            assert!(bare.takes_answers(good), "{good}");
        }
        let long = "r".repeat(600);
        for bad in [
            "",
            "tensor:cmd",
            "tensor:w",
            "tensor_lifecycle",
            "cmd:heap-cuda:0",
            "/models/w",
            "memcuda:owner",
            "a:memcuda:owner",
            "a:tensor:cmd",
            &long,
        ] {
            assert!(!bare.takes_answers(bad), "{bad}");
        }
        let spaced = Keys::new("a");
        assert!(spaced.takes_answers("a:reply"));
        assert!(!spaced.takes_answers("reply"));
        assert!(!spaced.takes_answers("a:tensor:cmd"));
    }

    #[test]
    fn only_paths_have_a_path_key() {
        let path = |text: &str| Keys::new("").path(&Name::new(text).unwrap());
        assert_eq!(path("/models/w").as_deref(), Some("/models/w"));
        assert_eq!(path("w"), None);
        assert_eq!(path("/sys/heap-plat/cuda:0"), None);
    }
}
