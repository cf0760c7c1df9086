//! Files that a user named: there whole or not at all, however the command ends. A
//! file has no name until it is whole, so that nothing of it stays, either; where a
//! file system has no such files it is copied at the end. What cannot be stored, and is told
//! only then, is an error, too. What is no file (a pipe, a terminal) is written as it is.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use memcuda::error::Error;
use nix::unistd::close;
use rustix::fs::{AtFlags, CWD, linkat};

/// Writes a file, in the place of one that is there. Errors name it, but for those of
/// input.
pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let written = match place(path) {
        Some(path) => at(&path, write),
        None => as_it_is(path, write),
    };
    written.map_err(|error| match error.is::<Error>() {
        true => error,
        false => error.context(format!("cannot write {}", path.display())),
    })
}

/// Is a file, behind all links, one of these?
pub fn is_one_of<'a>(file: &Path, others: impl IntoIterator<Item = &'a Path>) -> bool {
    let which = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let own = which(file);
    own.is_some() && others.into_iter().any(|other| which(other) == own)
}

/// Fails where a file that is to be written is one of those that are read: it would be lost.
pub fn apart<'a>(
    written: &Path,
    read: impl IntoIterator<Item = &'a Path>,
) -> memcuda::error::Result<()> {
    if is_one_of(written, read) {
        let path = written.display();
        let why = "is what is read, and would be lost; accepted: another file";
        return Err(Error::new(format!("{path} {why}")));
    }
    Ok(())
}

/// An error of `tempfile` without the name of a file that nobody knows.
pub fn alone(error: io::Error) -> io::Error {
    let said = error.to_string();
    let why = said.split(" at path ").next().unwrap_or_default();
    io::Error::new(error.kind(), why)
}

/// Where the file stands or will stand, behind all links; `None` for what is no file.
fn place(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(behind) => behind.is_file().then_some(behind),
        Err(_) => (!path.exists()).then(|| path.to_owned()),
    }
}

fn as_it_is(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(File::options().write(true).open(path)?);
    write(&mut out)?;
    Ok(out.flush()?)
}

fn at(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // As any file that a command makes; the umask takes its part. Where none is without
    // a name this one is its owner's alone, and the copy is as any.
    let fresh = tempfile::tempfile_in(folder).map_err(alone)?;
    let mut kept = None;
    if path.exists() {
        // Whom it is closed to may not put another one there, nor open it to others.
        let there = File::options().write(true).open(path)?;
        let mode = Permissions::from_mode(there.metadata()?.mode() & 0o777);
        fresh.set_permissions(mode.clone())?;
        kept = Some(mode);
    }
    let mut out = BufWriter::new(&fresh);
    write(&mut out)?;
    out.into_inner().map_err(|error| error.into_error())?;
    store(&fresh)?;
    // A name that is taken is another file's until it is put in its place.
    let beside = |name: &Path| link(&fresh, name).or_else(|_| copy(&fresh, name, kept.clone()));
    let named = tempfile::Builder::new()
        .prefix(".memcuda-")
        .make_in(folder, beside)
        .map_err(alone)?;
    closed(fresh)?;
    named.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Has all of a file stored. What lies elsewhere (NFS, Lustre, FUSE) may be refused only then, or
/// when it is closed.
fn store(file: &File) -> io::Result<()> {
    match file.sync_all() {
        // There are file systems that cannot say.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        stored => stored,
    }
}

fn closed(file: File) -> io::Result<()> {
    Ok(close(file)?)
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, open, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// With the mode of the file in whose place it comes; else with that of any new one.
fn copy(mut file: &File, name: &Path, kept: Option<Permissions>) -> io::Result<()> {
    let mut to = File::create_new(name)?;
    let mode = kept.map_or(Ok(()), |mode| to.set_permissions(mode));
    let copied = mode.and_then(|()| file.rewind());
    let copied = copied.and_then(|()| io::copy(&mut file, &mut to));
    let stored = copied.and_then(|_| store(&to));
    stored
        .and_then(|()| closed(to))
        .inspect_err(|_| drop(fs::remove_file(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_file_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = tempfile::tempfile_in(&folder).unwrap();
        file.write_all(b"text").unwrap();
        let name = folder.path().join("name");
        copy(&file, &name, Some(Permissions::from_mode(0o640))).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"text");
        assert_eq!(fs::metadata(&name).unwrap().mode() & 0o777, 0o640);
        let taken = copy(&file, &name, None).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let unreadable = File::options().write(true).open(&name).unwrap();
        let other = folder.path().join("other");
        copy(&unreadable, &other, None).unwrap_err();
        assert!(!other.exists());
    }
}
