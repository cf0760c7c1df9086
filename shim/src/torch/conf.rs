//! Torch's allocator setting as text (`key:value,key:value`): what a profile
//! makes of what the user set. Pure; the rules are the functions below.
//!
//! The user's entries are kept, with three exceptions, each reported:
//! expandable segments hide memory from the pool, a `backend` that contradicts
//! an explicit profile is replaced, and whoever lets go of torch's lock during
//! `cudaMalloc` gets no cooperative reclaim.

/// The setting that torch gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The user's own setting, untouched, with the reason.
    Untouched(&'static str),
    /// Torch's native allocator with cooperative reclaim from `split` bytes on.
    Native {
        /// The whole setting.
        text: String,
        /// What was done to the user's own entries.
        changed: Vec<String>,
    },
    /// `backend:cudaMallocAsync`.
    Async {
        /// The whole setting.
        text: String,
        /// What was done to the user's own entries.
        changed: Vec<String>,
    },
}

/// Below this torch splits segments, so that tensors share them; from it on each
/// has a segment of its own, or a cached one that is up to 20 MiB larger. More
/// shares what then nobody can give back, less wastes what is larger than needed:
/// by replays of recorded jobs (docs/research.md). The key is as old as the
/// oldest torch that is supported; other sizes of the shared segments
/// (`large_segment_size_mb`) hold less for some jobs and more for others.
const SPLIT_MB: u64 = 32;

/// Torch's native allocator, set up for cooperative reclaim.
pub fn native(user: &str) -> Merged {
    let mut entries = split_entries(user);
    if value_of(&entries, "backend") == Some("cudaMallocAsync") {
        return Merged::Untouched("the user chose backend:cudaMallocAsync");
    }
    let unlocks = |e: &&str| key(e).starts_with("release_lock_on_") && is_true(value(e));
    if entries.iter().any(unlocks) {
        return Merged::Untouched("the user set release_lock_on_cudamalloc");
    }
    let changed = drop_expandable(&mut entries);
    let mut text: Vec<String> = entries.iter().map(|e| (*e).to_owned()).collect();
    if value_of(&entries, "max_split_size_mb").is_none() {
        // Torch wants it to be at least the segment's size.
        let segment = value_of(&entries, "large_segment_size_mb").map(str::parse::<u64>);
        let Ok(segment) = segment.transpose() else {
            return Merged::Untouched("a size in the user's own setting is not a number");
        };
        let split = segment.map_or(SPLIT_MB, |segment| SPLIT_MB.max(segment));
        text.push(format!("max_split_size_mb:{split}"));
    }
    Merged::Native {
        text: text.join(","),
        changed,
    }
}

/// Torch over `cudaMallocAsync`.
pub fn stream_ordered(user: &str) -> Merged {
    let mut entries = split_entries(user);
    let mut changed = drop_expandable(&mut entries);
    let before = value_of(&entries, "backend").map(str::to_owned);
    if let Some(other) = before.filter(|b| b != "cudaMallocAsync") {
        changed.push(format!(
            "backend:{other} was replaced by MEMCUDA_TORCH=async"
        ));
    }
    entries.retain(|e| key(e) != "backend");
    entries.push("backend:cudaMallocAsync");
    Merged::Async {
        text: entries.join(","),
        changed,
    }
}

fn drop_expandable(entries: &mut Vec<&str>) -> Vec<String> {
    let expandable = |e: &str| key(e) == "expandable_segments" && is_true(value(e));
    let before = entries.len();
    entries.retain(|e| !expandable(e));
    if entries.len() == before {
        return Vec::new();
    }
    vec!["expandable_segments:True was left out: it hides memory from the pool".to_owned()]
}

/// The entries, split at the commas outside brackets
/// (`roundup_power2_divisions:[256:1,512:2]` is one entry).
fn split_entries(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let entries = text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    });
    entries.map(str::trim).filter(|e| !e.is_empty()).collect()
}

fn key(entry: &str) -> &str {
    entry.split(':').next().unwrap_or_default().trim()
}

fn value(entry: &str) -> &str {
    entry.split_once(':').map_or("", |(_, v)| v.trim())
}

/// The value that counts: torch lets later entries overwrite earlier ones.
fn value_of<'a>(entries: &[&'a str], wanted: &str) -> Option<&'a str> {
    entries.iter().rfind(|e| key(e) == wanted).map(|e| value(e))
}

fn is_true(value: &str) -> bool {
    value.trim() == "True"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native_text(user: &str) -> (String, usize) {
        match native(user) {
            Merged::Native { text, changed } => (text, changed.len()),
            other => panic!("{user}: {other:?}"),
        }
    }

    #[test]
    fn the_users_entries_are_kept() {
        assert_eq!(native_text(""), ("max_split_size_mb:32".into(), 0));
        let user = "roundup_power2_divisions:[256:1,512:2,>:4], garbage_collection_threshold:0.8";
        assert_eq!(
            native_text(user).0,
            "roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.8,max_split_size_mb:32"
        );
        let own = "max_split_size_mb:128";
        assert_eq!(native_text(own), (own.into(), 0));
        assert_eq!(
            native_text("large_segment_size_mb:30").0,
            "large_segment_size_mb:30,max_split_size_mb:32"
        );
        assert_eq!(
            native_text("large_segment_size_mb:40").0,
            "large_segment_size_mb:40,max_split_size_mb:40"
        );
    }

    #[test]
    fn expandable_segments_are_left_out_and_that_is_said() {
        let (text, said) = native_text("expandable_segments:True");
        assert_eq!((text.as_str(), said), ("max_split_size_mb:32", 1));
        let (text, said) = native_text("expandable_segments:False");
        assert_eq!(said, 0);
        assert!(text.starts_with("expandable_segments:False,"));
    }

    #[test]
    fn a_setting_that_reclaim_cannot_live_with_is_left_alone() {
        for user in [
            "backend:cudaMallocAsync",
            "release_lock_on_cudamalloc:True",
            "large_segment_size_mb:lots",
        ] {
            assert!(matches!(native(user), Merged::Untouched(_)), "{user}");
        }
    }

    #[test]
    fn async_replaces_the_backend_and_says_so() {
        let Merged::Async { text, changed } = stream_ordered("backend:native,a:1") else {
            panic!()
        };
        assert_eq!(text, "a:1,backend:cudaMallocAsync");
        assert_eq!(changed.len(), 1);
        let Merged::Async { text, changed } = stream_ordered("backend:cudaMallocAsync") else {
            panic!()
        };
        assert_eq!(
            (text.as_str(), changed.len()),
            ("backend:cudaMallocAsync", 0)
        );
    }
}
