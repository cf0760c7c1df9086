//! Processes that made memory for a keeper which has become another program since
//! (`memcuda keeper restart`): they end with the thread that started them, are children of
//! this process still, and nobody else waits for them. Ends none.

use std::fs;

use crate::keeper::succession::relative::Relative;

/// Waiting takes no room.
const STACK: usize = 64 << 10;

/// The children of this process but its standby: those of the program before, where this
/// one has started none. None where the kernel does not tell.
pub fn look(standby: u32) -> Vec<Relative> {
    let this = std::process::id();
    let said = fs::read_to_string(format!("/proc/self/task/{this}/children"));
    let said = said.unwrap_or_default();
    let children = said.split_ascii_whitespace().flat_map(str::parse);
    let others = children.filter(|child| *child != standby);
    others.map(Relative::of).collect()
}

/// Waits for each, in a thread of its own.
pub fn wait_for(orphans: Vec<Relative>) {
    if orphans.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("memcuda-orphans".to_owned());
    // Where there is none they stay until this process ends.
    let _ = thread
        .stack_size(STACK)
        .spawn(move || orphans.iter().for_each(Relative::wait));
}
