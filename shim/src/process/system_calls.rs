//! System calls under the names that a newer glibc gives them, hidden, so that
//! an old glibc can load the library (see `old_libc`). They set `errno` as
//! libc's do; where the kernel lacks one the standard library knows another
//! way, as it does under an old glibc.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

/// Defines each name, hidden, as the function given.
macro_rules! hidden {
    ($($name:literal = $function:path),* $(,)?) => {$(
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "endbr64",
            "jmp {function}",
            function = sym $function,
        );

        #[cfg(target_arch = "aarch64")]
        core::arch::global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "hint #34", // bti c
            "b {function}",
            function = sym $function,
        );
    )*};
}

hidden! {
    "stat64" = stat,
    "lstat64" = lstat,
    "fstat64" = fstat,
    "fstat" = fstat,
    "statx" = statx,
    "gettid" = gettid,
    "getrandom" = getrandom,
    "memfd_create" = memfd_create,
}

/// On 64-bit systems the kernel's `struct stat` is libc's.
unsafe extern "C" fn stat(path: *const c_char, out: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's arguments, as stat demands them.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, out, 0) as c_int }
}

unsafe extern "C" fn lstat(path: *const c_char, out: *mut libc::stat64) -> c_int {
    let (here, itself) = (libc::AT_FDCWD, libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: the caller's arguments, as lstat demands them.
    unsafe { libc::syscall(libc::SYS_newfstatat, here, path, out, itself) as c_int }
}

unsafe extern "C" fn fstat(descriptor: c_int, out: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's arguments, as fstat demands them.
    unsafe { libc::syscall(libc::SYS_fstat, descriptor, out) as c_int }
}

unsafe extern "C" fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments, as statx demands them.
    unsafe { libc::syscall(libc::SYS_statx, directory, path, flags, mask, out) as c_int }
}

unsafe extern "C" fn gettid() -> c_int {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

unsafe extern "C" fn getrandom(out: *mut c_void, bytes: usize, flags: c_uint) -> c_long {
    // SAFETY: the caller's arguments, as getrandom demands them.
    unsafe { libc::syscall(libc::SYS_getrandom, out, bytes, flags) }
}

unsafe extern "C" fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
    // SAFETY: the caller's arguments, as memfd_create demands them.
    unsafe { libc::syscall(libc::SYS_memfd_create, name, flags) as c_int }
}
