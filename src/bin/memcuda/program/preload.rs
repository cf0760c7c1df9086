//! Finds libmemcuda.so, composes LD_PRELOAD, and takes the library out of this
//! process. Paths are bytes: they need not be UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use memcuda::driver::ignored;

use crate::file_limit;

/// File name of the preloaded library.
pub const LIBRARY: &str = "libmemcuda.so";

/// The absolute path of libmemcuda.so: beside this command (a build, or an
/// unpacked release), else in the `lib` or `lib/memcuda` next to its `bin`, or in the
/// `libexec/memcuda` of a wheel.
pub fn library() -> Result<PathBuf> {
    let command = std::env::current_exe().context("cannot tell where the memcuda command is")?;
    let beside = command.parent().unwrap_or(Path::new("/"));
    let places = [
        beside.to_owned(),
        beside.join("../lib"),
        beside.join("../lib/memcuda"),
        beside.join("../libexec/memcuda"),
    ];
    let Some(found) = places.iter().map(|p| p.join(LIBRARY)).find(|p| p.is_file()) else {
        let places = places.map(|p| p.display().to_string()).join(", ");
        bail!("{LIBRARY} is in none of {places}; build it with `make build`");
    };
    let path = found
        .canonicalize()
        .with_context(|| found.display().to_string())?;
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| separates(*byte))
    {
        bail!(
            "the loader cannot preload {path:?}: LD_PRELOAD has no way to write a path with a space or a colon; move memcuda"
        );
    }
    Ok(path)
}

/// LD_PRELOAD with the library in front of what is there already, but behind the
/// runtimes of sanitizers: they end a program in which anything comes before them.
pub fn with(library: &Path, existing: Option<&OsStr>) -> OsString {
    let (mut all, rest): (Vec<_>, Vec<_>) =
        entries(existing).partition(|entry| is_sanitizer(entry));
    all.push(library.as_os_str().as_bytes());
    all.extend(rest);
    OsString::from_vec(all.join(&b':'))
}

/// LD_PRELOAD without any libmemcuda.so; `None` where nothing is left.
pub fn without(existing: Option<&OsStr>) -> Option<OsString> {
    let kept: Vec<&[u8]> = entries(existing).collect();
    (!kept.is_empty()).then(|| OsString::from_vec(kept.join(&b':')))
}

/// Where this process has the library preloaded, as in a shell that has, executes it
/// anew without it: whoever only asks the driver would begin as a program does, and
/// take the recording of one (`MEMCUDA_TRACE`).
pub fn leave() -> Result<()> {
    let existing = std::env::var_os("LD_PRELOAD");
    if !all(existing.as_deref()).any(is_ours) {
        return Ok(());
    }
    let mut words = std::env::args_os();
    let command = std::env::current_exe().context("cannot tell where the memcuda command is")?;
    let mut command = Command::new(command);
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    match without(existing.as_deref()) {
        Some(rest) => command.env("LD_PRELOAD", rest),
        None => command.env_remove("LD_PRELOAD"),
    };
    file_limit::let_go();
    Err(ignored::exec(command.args(words))).context("cannot begin anew without libmemcuda.so")
}

/// The entries of LD_PRELOAD but libmemcuda.so, wherever it lies: two of them
/// in one process would hook each other.
fn entries(existing: Option<&OsStr>) -> impl Iterator<Item = &[u8]> {
    all(existing).filter(|entry| !is_ours(entry))
}

fn all(existing: Option<&OsStr>) -> impl Iterator<Item = &[u8]> {
    let bytes = existing.map(OsStr::as_bytes).unwrap_or_default();
    let entries = bytes.split(|byte| separates(*byte));
    entries.filter(|entry| !entry.is_empty())
}

/// Is it libmemcuda.so?
fn is_ours(entry: &[u8]) -> bool {
    Path::new(OsStr::from_bytes(entry)).file_name() == Some(OsStr::new(LIBRARY))
}

/// Is it a runtime of gcc's or clang's sanitizers?
fn is_sanitizer(entry: &[u8]) -> bool {
    const RUNTIMES: [&str; 5] = [
        "libasan.so",
        "libhwasan.so",
        "liblsan.so",
        "libtsan.so",
        "libclang_rt.",
    ];
    let file = Path::new(OsStr::from_bytes(entry)).file_name();
    let file = file.unwrap_or_default().as_bytes();
    RUNTIMES.iter().any(|it| file.starts_with(it.as_bytes()))
}

fn separates(byte: u8) -> bool {
    byte == b':' || byte == b' '
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_once_and_the_rest_is_kept_byte_for_byte() {
        let ours = Path::new("/opt/memcuda/libmemcuda.so");
        assert_eq!(with(ours, None), "/opt/memcuda/libmemcuda.so");
        let existing = OsStr::from_bytes(b"/a/\xff.so /old/libmemcuda.so:libc.so.6 :");
        let composed = with(ours, Some(existing));
        assert_eq!(
            composed.as_bytes(),
            b"/opt/memcuda/libmemcuda.so:/a/\xff.so:libc.so.6"
        );
        assert_eq!(with(ours, Some(&composed)), composed);
        let checked = with(ours, Some(OsStr::new("libc.so.6:/gcc/libasan.so.8")));
        assert_eq!(
            checked,
            "/gcc/libasan.so.8:/opt/memcuda/libmemcuda.so:libc.so.6"
        );
        assert_eq!(
            without(Some(&composed)).unwrap().as_bytes(),
            b"/a/\xff.so:libc.so.6"
        );
        assert_eq!(without(Some(OsStr::new("libmemcuda.so"))), None);
    }
}
