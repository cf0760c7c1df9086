//! Other processes, seen through /proc: who descends from whom, and who has a
//! statistics page. Reads only; a process that ends meanwhile is simply gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use memcuda::error::Result;
use memcuda::frames::{MAGIC, header};
use memcuda::proc_stat;
use memcuda::stats_page::{self, Counters, MEMFD_NAME};

/// A process's open statistics page. It can still be read after the process
/// ended.
pub struct Page {
    /// The process in which it was found.
    pub pid: u32,
    /// Which page: forked processes share their parent's.
    pub inode: u64,
    file: File,
}

impl Page {
    /// The counters now, one for each device.
    pub fn read(&self) -> Result<Vec<Counters>> {
        stats_page::read(|bytes| self.file.read_at(bytes, 0))
    }
}

/// The statistics page of a process, `None` where it has none, or the reason
/// why one cannot tell.
pub fn page(pid: u32) -> io::Result<Option<Page>> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        let file = match fs::read_link(&path) {
            Ok(target) if is_page(&target) => open_file(&path),
            other => other.map(|_| None),
        };
        match file {
            Ok(Some(file)) => {
                let inode = file.metadata()?.ino();
                return Ok(Some(Page { pid, inode, file }));
            }
            Ok(None) => {}
            Err(error) => match error.kind() {
                // Closed since it was listed; or deeper in a tree than can be said.
                ErrorKind::NotFound | ErrorKind::InvalidFilename => {}
                _ => return Err(error),
            },
        }
    }
    Ok(None)
}

/// Is this said of processes of others, and of those that have ended meanwhile?
pub fn is_out_of_sight(error: &io::Error) -> bool {
    let ended = Some(rustix::io::Errno::SRCH.raw_os_error());
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::PermissionDenied
    ) || error.raw_os_error() == ended
}

/// Opens a regular file, `None` where it is none. Never waits: anybody may give a
/// pipe the name of a page, in a file system of their own.
fn open_file(path: &Path) -> io::Result<Option<File>> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// What a process records of itself (`MEMCUDA_TRACE`).
pub struct Recording {
    /// The file, through the process: it need not be where it was.
    pub path: PathBuf,
    /// Frames that were begun.
    pub frames: u64,
    /// Events that were lost, as there was no room for them in time.
    pub lost: u64,
}

/// The recording of a process, where it makes one.
pub fn recording(pid: u32) -> Option<Recording> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    open.map(|entry| entry.path()).find_map(|path| {
        // A device may mind being opened.
        let is_file = fs::metadata(&path).is_ok_and(|about| about.is_file());
        let file = is_file.then(|| open_file(&path).ok().flatten())??;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 8 * at as u64).ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        (word(header::MAGIC)? == MAGIC).then_some(())?;
        Some(Recording {
            frames: word(header::BEGUN)?,
            lost: word(header::LOST)?,
            path,
        })
    })
}

fn is_page(target: &Path) -> bool {
    let name = target.to_string_lossy();
    let name = name.strip_prefix("/memfd:").unwrap_or_default();
    name.strip_suffix(" (deleted)").unwrap_or(name) == MEMFD_NAME
}

/// Every process that can be seen, by ascending id.
pub fn all() -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|it| it.parse::<u32>().ok()),
        );
    }
    pids.sort_unstable();
    Ok(pids)
}

/// A process and everything that descends from it.
pub fn tree(root: u32) -> Vec<u32> {
    let mut pids = vec![root];
    let mut next = 0;
    while let Some(pid) = pids.get(next) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            pids.extend(
                children
                    .split_whitespace()
                    .filter_map(|c| c.parse::<u32>().ok()),
            );
        }
        next += 1;
    }
    pids
}

/// Does this process still run? One that ended and was not waited for does not.
pub fn is_alive(pid: u32) -> bool {
    proc_stat::field(pid, proc_stat::STATE).is_some_and(|state: char| state != 'Z')
}

/// The user as whom a process acts, whoever may look into it.
pub fn user(pid: u32) -> Option<u32> {
    let status = about(pid, "status")?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// The short name of a process (`comm`), which may hold control characters.
pub fn name(pid: u32) -> String {
    let name = about(pid, "comm").unwrap_or_default();
    name.trim_end().to_owned()
}

/// What a file of a process says. Its name, which may stand there, is any bytes.
fn about(pid: u32, file: &str) -> Option<String> {
    let said = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_no_file_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert!(open_file(&pipe).unwrap().is_none());
        std::fs::write(folder.path().join("file"), "x").unwrap();
        assert!(open_file(&folder.path().join("file")).unwrap().is_some());
    }
}
