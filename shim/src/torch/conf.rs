//! Torch's allocator setting as text (`key:value,key:value`): what a profile
//! makes of what the user set. Pure; the rules are the functions below.
//!
//! The user's entries are kept, with three exceptions, each reported:
//! expandable segments whose pages are not kept hide memory from the pool, a
//! `backend` that contradicts an explicit profile is replaced, and whoever lets go
//! of torch's lock during `cudaMalloc` gets no cooperative reclaim.

use memcuda_core::reclaim::{PAGE_MB, PAGES_SPLIT_MB, SPLIT_MB};

/// How torch gets its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// By cudaMalloc, in segments that it gives back one by one.
    Segments,
    /// In expandable segments over pages that are kept; it is asked at the peak.
    Expandable,
    /// By `backend:cudaMallocAsync`.
    Async,
}

impl Profile {
    /// As it is called where users read.
    pub fn word(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Expandable => "native, with expandable segments",
            Self::Async => "async",
        }
    }
}

/// The setting that torch gets in the place of the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// What torch does by it.
    pub profile: Profile,
    /// The whole of it.
    pub text: String,
    /// What was done to the user's own entries.
    pub changed: Vec<String>,
    /// What of these speaks against expandable segments, where the profile has them.
    pub unfit: Option<&'static str>,
}

/// A setting, or why the user's own stays untouched.
pub type Merged = Result<Setting, &'static str>;

/// What a profile makes of the user's setting.
pub fn merged(profile: Profile, user: &str) -> Merged {
    match profile {
        Profile::Segments => segments(user),
        Profile::Expandable => expandable(user),
        Profile::Async => Ok(stream_ordered(user)),
    }
}

/// What a handle's bytes are a multiple of.
const GRANULE_MB: u64 = 2;

/// Torch's expandable segments over pages that are kept, for a torch that knows
/// all three keys together; [`segments`] where the user turned them off, or left them off
/// and said how they are to be (`expandable_segments_reserve`): a request for more fails.
/// So too where he did not turn them on, and pages as long as his segments were no handles.
fn expandable(user: &str) -> Merged {
    let mut entries = split_entries(user);
    bears_reclaim(&entries)?;
    let page = value_of(&entries, "large_segment_size_mb").map(str::parse::<u64>);
    let page = page.transpose().map_err(|_| NO_NUMBER)?;
    let unfit = unfit(&entries, page);
    if unfit.is_some() {
        return segments(user).map(|setting| Setting { unfit, ..setting });
    }
    entries.retain(|e| key(e) != "expandable_segments");
    let mut text: Vec<String> = entries.iter().map(|e| (*e).to_owned()).collect();
    text.push("expandable_segments:True".to_owned());
    if page.is_none() {
        text.push(format!("large_segment_size_mb:{PAGE_MB}"));
    }
    if value_of(&entries, "max_split_size_mb").is_none() {
        let split = PAGES_SPLIT_MB.max(page.unwrap_or(PAGE_MB));
        text.push(format!("max_split_size_mb:{split}"));
    }
    Ok(Setting {
        profile: Profile::Expandable,
        text: text.join(","),
        changed: Vec::new(),
        unfit: None,
    })
}

/// Why the user's own setting has no expandable segments beside it.
fn unfit(entries: &[&str], page: Option<u64>) -> Option<&'static str> {
    let is_how = |entry: &&str| key(entry).starts_with("expandable_segments_");
    match value_of(entries, "expandable_segments") {
        Some(value) => (!is_true(value)).then_some("the user turned expandable segments off"),
        None if entries.iter().any(is_how) => Some(
            "the user said how expandable segments are to be (expandable_segments_...), but not \
             expandable_segments:True",
        ),
        None => page
            .filter(|mib| !mib.is_multiple_of(GRANULE_MB))
            .map(|_| "the user's large_segment_size_mb is odd, and pages are a multiple of 2 MiB"),
    }
}

/// Does the user's own setting turn expandable segments on?
pub fn has_expandable(user: &str) -> bool {
    value_of(&split_entries(user), "expandable_segments").is_some_and(is_true)
}

/// Has the user's own setting this key?
pub fn says(user: &str, wanted: &str) -> bool {
    value_of(&split_entries(user), wanted).is_some()
}

const NO_NUMBER: &str = "a size in the user's own setting is not a number";

/// Fails with what reclaim cannot live with.
fn bears_reclaim(entries: &[&str]) -> Result<(), &'static str> {
    if value_of(entries, "backend") == Some("cudaMallocAsync") {
        return Err("the user chose backend:cudaMallocAsync");
    }
    let unlocks = |e: &&str| key(e).starts_with("release_lock_on_") && is_true(value(e));
    match entries.iter().any(unlocks) {
        true => Err("the user set release_lock_on_cudamalloc"),
        false => Ok(()),
    }
}

/// Torch's segments by cudaMalloc, set up for cooperative reclaim.
fn segments(user: &str) -> Merged {
    let mut entries = split_entries(user);
    bears_reclaim(&entries)?;
    let changed = drop_expandable(&mut entries);
    let mut text: Vec<String> = entries.iter().map(|e| (*e).to_owned()).collect();
    if value_of(&entries, "max_split_size_mb").is_none() {
        // Torch wants it to be at least the segment's size.
        let segment = value_of(&entries, "large_segment_size_mb").map(str::parse::<u64>);
        let segment = segment.transpose().map_err(|_| NO_NUMBER)?;
        let split = segment.map_or(SPLIT_MB, |segment| SPLIT_MB.max(segment));
        text.push(format!("max_split_size_mb:{split}"));
    }
    Ok(Setting {
        profile: Profile::Segments,
        text: text.join(","),
        changed,
        unfit: None,
    })
}

/// Torch over `cudaMallocAsync`.
fn stream_ordered(user: &str) -> Setting {
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
    Setting {
        profile: Profile::Async,
        text: entries.join(","),
        changed,
        unfit: None,
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

    fn segments_text(user: &str) -> (String, usize) {
        let setting = segments(user).unwrap();
        assert_eq!(setting.profile, Profile::Segments);
        (setting.text, setting.changed.len())
    }

    #[test]
    fn the_users_entries_are_kept() {
        assert_eq!(segments_text(""), ("max_split_size_mb:32".into(), 0));
        let user = "roundup_power2_divisions:[256:1,512:2,>:4], garbage_collection_threshold:0.8";
        assert_eq!(
            segments_text(user).0,
            "roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.8,max_split_size_mb:32"
        );
        let own = "max_split_size_mb:128";
        assert_eq!(segments_text(own), (own.into(), 0));
        assert_eq!(
            segments_text("large_segment_size_mb:30").0,
            "large_segment_size_mb:30,max_split_size_mb:32"
        );
        assert_eq!(
            segments_text("large_segment_size_mb:40").0,
            "large_segment_size_mb:40,max_split_size_mb:40"
        );
    }

    #[test]
    fn expandable_segments_are_left_out_and_that_is_said() {
        let (text, said) = segments_text("expandable_segments:True");
        assert_eq!((text.as_str(), said), ("max_split_size_mb:32", 1));
        let (text, said) = segments_text("expandable_segments:False");
        assert_eq!(said, 0);
        assert!(text.starts_with("expandable_segments:False,"));
    }

    fn expandable_text(user: &str) -> String {
        let setting = expandable(user).unwrap();
        assert_eq!(setting.profile, Profile::Expandable);
        assert!(setting.changed.is_empty() && setting.unfit.is_none());
        setting.text
    }

    #[test]
    fn expandable_segments_are_set_up_and_the_users_entries_are_kept() {
        let all = "expandable_segments:True,large_segment_size_mb:12,max_split_size_mb:192";
        assert_eq!(expandable_text(""), all);
        assert_eq!(expandable_text("expandable_segments:True"), all);
        assert_eq!(expandable_text("a:1"), format!("a:1,{all}"));
        assert_eq!(
            expandable_text("max_split_size_mb:128,large_segment_size_mb:20"),
            "max_split_size_mb:128,large_segment_size_mb:20,expandable_segments:True"
        );
        assert!(expandable_text("large_segment_size_mb:600").ends_with("max_split_size_mb:600"));
    }

    #[test]
    fn expandable_segments_that_the_user_has_off_stay_off() {
        assert!(has_expandable("a:1, expandable_segments:True"));
        assert!(!has_expandable(
            "expandable_segments:True,expandable_segments:False"
        ));
        let off = "expandable_segments:False";
        let how = "expandable_segments_reserve:0.1";
        let odd = "large_segment_size_mb:25";
        for (user, why) in [
            (off, "off"),
            (how, "(expandable_segments_...)"),
            (odd, "odd"),
        ] {
            let mut setting = expandable(user).unwrap();
            let said = setting.unfit.take();
            assert!(said.is_some_and(|said| said.contains(why)), "{user}");
            assert_eq!(Ok(setting), segments(user));
        }
        let on = format!("expandable_segments:True,{odd}");
        assert_eq!(expandable(&on).unwrap().profile, Profile::Expandable);
        let on = format!("expandable_segments:True,{how}");
        assert_eq!(expandable(&on).unwrap().profile, Profile::Expandable);
        let text = "expandable_segments:False,max_split_size_mb:32";
        assert_eq!(segments_text("expandable_segments:False"), (text.into(), 0));
        for user in ["backend:cudaMallocAsync", "release_lock_on_cudamalloc:True"] {
            assert!(expandable(user).is_err(), "{user}");
        }
    }

    #[test]
    fn a_setting_that_reclaim_cannot_live_with_is_left_alone() {
        for user in [
            "backend:cudaMallocAsync",
            "release_lock_on_cudamalloc:True",
            "large_segment_size_mb:lots",
        ] {
            assert!(segments(user).is_err(), "{user}");
        }
    }

    #[test]
    fn async_replaces_the_backend_and_says_so() {
        let replaced = stream_ordered("backend:native,a:1");
        assert_eq!(replaced.text, "a:1,backend:cudaMallocAsync");
        assert_eq!(replaced.changed.len(), 1);
        let same = stream_ordered("backend:cudaMallocAsync");
        assert_eq!(same.text, "backend:cudaMallocAsync");
        assert_eq!(same.changed.len(), 0);
    }
}
