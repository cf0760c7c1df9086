//! What a process's page of statistics says.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use memcuda_core::stats_page::{self, Counters, MEMFD_NAME};

/// Of each device.
pub fn of(process: u32) -> Vec<Counters> {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let mut paths = open.map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| {
        let target = std::fs::read_link(path);
        target.is_ok_and(|target| target.to_string_lossy().contains(MEMFD_NAME))
    };
    let page = File::open(paths.find(is_page).unwrap()).unwrap();
    stats_page::read(|bytes| page.read_at(bytes, 0)).unwrap()
}
