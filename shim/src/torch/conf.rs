//! Torch's allocator setting as text (`key:value,key:value`): what a profile
//! makes of what the user set. Pure; the rules are the functions below.
//!
//! The user's entries are kept, with three exceptions, each reported:
//! expandable segments hide memory from the pool, a `backend` that contradicts
//! an explicit profile is replaced, and whoever lets go of torch's lock during
//! `cudaMalloc` gets no cooperative reclaim.

/// What torch's parser knows beyond the oldest release that is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// `large_segment_size_mb` is a key; elsewhere it ends the program.
    pub large_segment_size: bool,
}

/// The setting that torch gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The user's own setting, untouched, with the reason.
    Untouched(&'static str),
    /// Torch's native allocator with cooperative reclaim from `split` bytes on.
    Native {
        /// The whole setting.
        text: String,
        /// Requests of at least this many bytes are never split by torch.
        split: u64,
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

/// Torch takes 20 MiB segments and splits nothing larger.
const SPLIT_MB: u64 = 21;
/// The least that torch accepts for both keys where it knows both: tensors
/// between 1 and 10 MiB are pinned together in smaller segments.
const SMALL_SEGMENT_MB: u64 = 11;

/// Torch's native allocator, set up for cooperative reclaim.
pub fn native(user: &str, dialect: Dialect) -> Merged {
    let mut entries = split_entries(user);
    if value_of(&entries, "backend") == Some("cudaMallocAsync") {
        return Merged::Untouched("the user chose backend:cudaMallocAsync");
    }
    let unlocks = |e: &&str| key(e).starts_with("release_lock_on_") && is_true(value(e));
    if entries.iter().any(unlocks) {
        return Merged::Untouched("the user set release_lock_on_cudamalloc");
    }
    let changed = drop_expandable(&mut entries);
    let own_split = value_of(&entries, "max_split_size_mb").map(str::parse::<u64>);
    let own_segment = value_of(&entries, "large_segment_size_mb").map(str::parse::<u64>);
    let (mut added, split) = match (own_split, own_segment) {
        (Some(Ok(split)), _) => (vec![], split),
        (None, Some(Ok(segment))) => (vec![("max_split_size_mb", segment)], segment),
        (None, None) if dialect.large_segment_size => (
            vec![
                ("large_segment_size_mb", SMALL_SEGMENT_MB),
                ("max_split_size_mb", SMALL_SEGMENT_MB),
            ],
            SMALL_SEGMENT_MB,
        ),
        (None, None) => (vec![("max_split_size_mb", SPLIT_MB)], SPLIT_MB),
        (Some(Err(_)), _) | (_, Some(Err(_))) => {
            return Merged::Untouched("a size in the user's own setting is not a number");
        }
    };
    let Some(split) = split.checked_mul(1 << 20) else {
        return Merged::Untouched("max_split_size_mb is beyond every memory");
    };
    let mut text: Vec<String> = entries.iter().map(|e| (*e).to_owned()).collect();
    text.extend(added.drain(..).map(|(key, mb)| format!("{key}:{mb}")));
    Merged::Native {
        text: text.join(","),
        split,
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

    const OLD: Dialect = Dialect {
        large_segment_size: false,
    };
    const NEW: Dialect = Dialect {
        large_segment_size: true,
    };

    fn native_text(user: &str, dialect: Dialect) -> (String, u64, usize) {
        match native(user, dialect) {
            Merged::Native {
                text,
                split,
                changed,
            } => (text, split >> 20, changed.len()),
            other => panic!("{user}: {other:?}"),
        }
    }

    #[test]
    fn native_adds_only_keys_that_this_torch_knows() {
        assert_eq!(native_text("", OLD), ("max_split_size_mb:21".into(), 21, 0));
        let both = "large_segment_size_mb:11,max_split_size_mb:11";
        assert_eq!(native_text("", NEW), (both.into(), 11, 0));
    }

    #[test]
    fn the_users_entries_are_kept() {
        let user = "roundup_power2_divisions:[256:1,512:2,>:4], garbage_collection_threshold:0.8";
        let (text, ..) = native_text(user, OLD);
        assert_eq!(
            text,
            "roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.8,max_split_size_mb:21"
        );
        let own = "max_split_size_mb:128";
        assert_eq!(native_text(own, NEW), (own.into(), 128, 0));
        let (text, split, _) = native_text("large_segment_size_mb:30", NEW);
        assert_eq!(
            (text.as_str(), split),
            ("large_segment_size_mb:30,max_split_size_mb:30", 30)
        );
    }

    #[test]
    fn expandable_segments_are_left_out_and_that_is_said() {
        let (text, _, said) = native_text("expandable_segments:True", OLD);
        assert_eq!((text.as_str(), said), ("max_split_size_mb:21", 1));
        let (text, _, said) = native_text("expandable_segments:False", OLD);
        assert_eq!(said, 0);
        assert!(text.starts_with("expandable_segments:False,"));
    }

    #[test]
    fn a_setting_that_reclaim_cannot_live_with_is_left_alone() {
        for user in [
            "backend:cudaMallocAsync",
            "release_lock_on_cudamalloc:True",
            "max_split_size_mb:lots",
            "max_split_size_mb:18446744073709551615",
        ] {
            assert!(matches!(native(user, NEW), Merged::Untouched(_)), "{user}");
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
