//! Where a verb's picture comes from: a process that runs, a report that one wrote
//! when it had no memory left, or a folder of such reports.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use memcuda::error::Error;
use memcuda::picture::{Picture, bytes};

use crate::survey;

/// What the names of reports begin and end with.
const REPORT: (&str, &str) = ("oom-", ".memcuda");

/// The picture that an argument names: a process by its number, a report, or the
/// latest report of a folder.
pub fn find(source: &Path) -> Result<Picture> {
    if let Some(pid) = process_of(source) {
        return survey::picture(pid);
    }
    let found = match source.is_dir() {
        true => read(&latest(source)?),
        false => read(source),
    };
    Ok(found?)
}

/// The process that an argument is the number of.
pub fn process_of(source: &Path) -> Option<u32> {
    source.to_str()?.parse().ok()
}

fn read(path: &Path) -> memcuda::error::Result<Picture> {
    // Not a device, whose length nobody knows.
    let about = fs::metadata(path).map_err(|error| Error::of_file(path, error))?;
    if !about.is_file() || about.len() > bytes::MOST {
        return Err(Error::of_file(path, "not a memcuda report"));
    }
    let all = fs::read(path).map_err(|error| Error::of_file(path, error))?;
    bytes::decode(&all).map_err(|error| Error::of_file(path, error))
}

fn latest(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|error| Error::of_file(folder, error))?;
    let reports = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(REPORT.0) && name.ends_with(REPORT.1)
    });
    let newest = reports.max_by_key(|entry| entry.metadata().and_then(|m| m.modified()).ok());
    let none = || Error::of_file(folder, "no report of out of memory in it");
    let newest = newest.ok_or_else(none)?;
    Ok(newest.path())
}
