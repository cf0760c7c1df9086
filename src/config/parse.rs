//! From the text of a variable to its value. `None` is what is not accepted;
//! which variable it was, and what is, says who asks.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::redis::is_address;
use super::{Idle, Keeper};
use crate::units::{GIB, HANDLE, parse_size};

pub fn choose<T: Copy>(value: &OsStr, names: &[(&str, T)]) -> Option<T> {
    names.iter().find(|(n, _)| *n == value).map(|(_, v)| *v)
}

/// A path; `none` is none.
pub fn path(value: &OsStr) -> Option<PathBuf> {
    (value != "none").then(|| value.into())
}

pub fn limit(value: &OsStr) -> Option<Vec<(Option<u32>, u64)>> {
    let value = value.to_str()?;
    if value == "none" {
        return Some(Vec::new());
    }
    // Nothing can be had under less than a handle: who says 24 means 24GiB.
    let handle = |text: &str| parse_size(text).filter(|&bytes| bytes >= HANDLE);
    if !value.contains('=') {
        return Some(vec![(None, handle(value)?)]);
    }
    let pair = |item: &str| {
        let (ordinal, size) = item.split_once('=')?;
        Some((Some(ordinal.trim().parse().ok()?), handle(size)?))
    };
    let limits: Vec<_> = value.split(',').map(pair).collect::<Option<_>>()?;
    // Who names a device twice means one of the two, and nobody knows which.
    let named: HashSet<_> = limits.iter().map(|(ordinal, _)| ordinal).collect();
    (named.len() == limits.len()).then_some(limits)
}

pub fn idle(value: &OsStr) -> Option<Idle> {
    let value = value.to_str()?;
    let Some(percent) = value.strip_suffix('%') else {
        // Who says 10 means 10%.
        let bytes = parse_size(value).filter(|&bytes| bytes == 0 || bytes >= HANDLE);
        return bytes.map(Idle::Bytes);
    };
    let percent = percent.trim_end().parse().ok()?;
    (0.0..=100.0)
        .contains(&percent)
        .then_some(Idle::Percent(percent))
}

pub fn chunk(value: &OsStr) -> Option<Option<u64>> {
    if value == "auto" {
        return Some(None);
    }
    let bytes = parse_size(value.to_str()?)?;
    let valid = bytes > 0 && bytes <= GIB && bytes % HANDLE == 0;
    valid.then_some(Some(bytes))
}

pub fn namespace(value: &OsStr) -> Option<String> {
    let value = value.to_str()?;
    const MARKS: &[u8] = b"._-/+@=";
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || MARKS.contains(&byte);
    if value == "unset" {
        return Some(String::new());
    }
    // These would meet the keys of who has no namespace.
    let reserved = matches!(value, "tensor" | "memcuda");
    let valid = value.len() <= 64 && !reserved && value.bytes().all(allowed);
    valid.then(|| value.to_owned())
}

pub fn keeper(value: &OsStr) -> Option<Keeper> {
    let path = Path::new(value);
    match value.to_str() {
        Some("auto") => Some(Keeper::Auto),
        Some("off") => Some(Keeper::Off),
        _ => path.is_absolute().then(|| Keeper::Socket(path.into())),
    }
}

pub fn redis(value: &OsStr) -> Option<Option<String>> {
    let value = value.to_str()?;
    if value == "none" {
        return Some(None);
    }
    is_address(value).then(|| Some(value.to_owned()))
}
