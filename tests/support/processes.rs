//! What the kernel tells tests of a process by its number.
#![allow(dead_code, reason = "each of those who share it uses a part")]

use std::time::Duration;

/// Its fields from the state on, the third (proc_pid_stat(5)); none where it is gone. The
/// name before them may hold anything.
pub fn stat(pid: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    behind_name.split_whitespace().map(str::to_owned).collect()
}

/// Does it run? Who has to wait for one that ended need not have done so.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).first().is_some_and(|state| state != "Z")
}

/// Is its number its own still? That of one that ended is until it was waited for.
pub fn has_number(pid: u32) -> bool {
    !stat(pid).is_empty()
}

/// Does its first thread sleep? One that has something to do does not, or will not in a moment.
pub fn is_asleep(pid: u32) -> bool {
    stat(pid).first().is_some_and(|state| state == "S")
}

/// Has it stopped, with all its threads? The first one to hear of the signal tells the
/// others, which go on until then.
pub fn is_stopped(pid: u32) -> bool {
    let Ok(mut threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.all(|thread| {
        let name = thread.unwrap().file_name();
        let state = name
            .to_str()
            .and_then(|id| stat(id.parse().ok()?).into_iter().next());
        state.is_some_and(|state| state == "T")
    })
}

/// What it took of a processor so far, in the 14th and the 15th field.
pub fn processor_time(pid: u32) -> Duration {
    let hundredths: u64 = stat(pid)[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(hundredths * 10)
}
