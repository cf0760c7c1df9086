//! Lets the library be loaded by an old glibc: functions that 2.34 moved into
//! libc.so.6 from libraries that not every process loads must not be a
//! dependency, or the loader would refuse the library and the program with it.
//! This library's own code and Rust's standard library get them here, under
//! hidden names: the host's own calls never come here.
//!
//! `shim/check-floor.sh` says which glibc is the oldest, and fails where a
//! symbol of a newer one is asked for; the remedy is a row here or, for a
//! system call, in `system_calls`.

use std::ffi::{CStr, c_int, c_void};

use crate::libraries::resolve;

// Threads: what the standard library's threads and thread-local values call.
crate::late! { 12 from find, else unknown:
    "pthread_key_create" 0,
    "pthread_key_delete" 1,
    "pthread_setspecific" 2,
    "pthread_create" 3,
    "pthread_join" 4,
    "pthread_detach" 5,
    "pthread_attr_setstacksize" 6,
    "pthread_attr_getstack" 7,
    "pthread_getattr_np" 8,
    "pthread_setname_np" 9,
    "pthread_sigmask" 10,
    "pthread_attr_getguardsize" 11,
}

/// Looks every function up, so that a later call takes no lock of the loader.
pub fn prepare() {
    for index in 0..NAMES.len() {
        fetch(index);
    }
}

/// What any library's call would reach: sanitizers stand in for some of them, and call
/// leaked what a thread has that they never heard of. Where nobody has it in the open,
/// that of a library which was loaded for another.
fn find(name: &CStr) -> *mut c_void {
    let in_the_open = || resolve::symbol(libc::RTLD_DEFAULT, name);
    let alone = |file| match resolve::loaded(file) {
        library if library.is_null() => library,
        library => resolve::symbol(library, name),
    };
    match in_the_open() {
        found if found.is_null() => alone(c"libpthread.so.0"),
        found => found,
    }
}

/// These functions return their error: in a process without threads there are none.
extern "C" fn unknown() -> c_int {
    libc::ENOSYS
}
