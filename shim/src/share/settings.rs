//! The environment in which a keeper is started: the program's, without what is the job's
//! alone. It is made of what it is given; of this process nothing is changed.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use memcuda_core::config::BEFORE_DOCTOR;

/// Libraries for the program, which the keeper does without.
const JOBS: [&[u8]; 2] = [b"LD_PRELOAD", b"LD_AUDIT"];

/// The keeper's entries, by those of the program.
pub fn of(program: &[&CStr]) -> Vec<CString> {
    let program = || program.iter().map(|entry| entry.to_bytes());
    let before_doctor = || program().filter_map(|it| it.strip_prefix(BEFORE_DOCTOR.as_bytes()));
    let stays = |entry: &&[u8]| {
        let replaced = before_doctor().any(|before| name(before) == name(entry));
        !JOBS.contains(&name(entry)) && !entry.starts_with(BEFORE_DOCTOR.as_bytes()) && !replaced
    };
    let was_set = |entry: &&[u8]| !entry.ends_with(b"=");
    let entries = program().filter(stays);
    let entries = entries.chain(before_doctor().filter(was_set));
    entries
        .map(|it| log_file(it).unwrap_or_else(|| it.to_vec()))
        .filter_map(|it| CString::new(it).ok())
        .collect()
}

fn name(entry: &[u8]) -> &[u8] {
    entry.split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// What an entry is to be that names the log's file as only this process finds it: in its
/// directory, or by the number of an open file. The keeper is elsewhere, and has none open.
fn log_file(entry: &[u8]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"MEMCUDA_LOG_FILE=";
    let file = entry.strip_prefix(NAME)?.trim_ascii();
    if [&b"/dev/fd/"[..], b"/proc/self/fd/"]
        .iter()
        .any(|open| file.starts_with(open))
    {
        return Some(NAME.to_vec());
    }
    if matches!(file, b"" | b"stderr" | [b'/', ..]) {
        return None;
    }
    let file = std::path::absolute(OsStr::from_bytes(file)).ok()?;
    Some([NAME, file.as_os_str().as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_these(entries: &[&CStr]) -> Vec<String> {
        let text = |entry: CString| entry.into_string().unwrap();
        of(entries).into_iter().map(text).collect()
    }

    #[test]
    fn it_is_the_programs_without_the_jobs_libraries() {
        let program = [
            c"LD_PRELOAD=/l.so",
            c"A=1",
            c"LD_AUDIT=/l.so",
            c"LD_PRELOADED=1",
        ];
        assert_eq!(of_these(&program), ["A=1", "LD_PRELOADED=1"]);
    }

    #[test]
    fn the_log_is_where_the_program_has_it_or_nowhere() {
        let here = std::env::current_dir().unwrap();
        let here = format!("MEMCUDA_LOG_FILE={}/job.log", here.display());
        for (program, keeper) in [
            (c"MEMCUDA_LOG_FILE=job.log", &here[..]),
            (c"MEMCUDA_LOG_FILE= job.log\t", &here),
            (c"MEMCUDA_LOG_FILE= ", "MEMCUDA_LOG_FILE= "),
            (c"MEMCUDA_LOG_FILE= /log", "MEMCUDA_LOG_FILE= /log"),
            (c"MEMCUDA_LOG_FILE=stderr ", "MEMCUDA_LOG_FILE=stderr "),
            (c"MEMCUDA_LOG_FILE=/dev/fd/63", "MEMCUDA_LOG_FILE="),
            (c"MEMCUDA_LOG_FILE= /proc/self/fd/7", "MEMCUDA_LOG_FILE="),
        ] {
            assert_eq!(of_these(&[program]), [keeper]);
        }
    }

    #[test]
    fn what_doctor_has_set_is_as_it_was_before() {
        let program = [
            c"MEMCUDA_LOG=debug",
            c"MEMCUDA_DOCTOR_MEMCUDA_LOG=info",
            c"MEMCUDA_LOG_FORMAT=json",
            c"MEMCUDA_DOCTOR_MEMCUDA_LOG_FORMAT=",
            c"MEMCUDA_LIMIT=1GiB",
        ];
        assert_eq!(
            of_these(&program),
            ["MEMCUDA_LIMIT=1GiB", "MEMCUDA_LOG=info"]
        );
    }
}
