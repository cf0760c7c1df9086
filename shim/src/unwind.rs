//! The unwinder, which the standard library's panics need, looked up when it is
//! needed: without this, libgcc_s would be loaded into every preloaded process,
//! a sixth of a small program's start-up more (docs/measurements/startup.md).
//! Only the functions that the standard library calls, and under hidden names:
//! the host's own unwinding never comes here, and both use the one libgcc_s
//! that the process has.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::resolve;

const COUNT: usize = 12;

static FOUND: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];

/// `_URC_END_OF_STACK`: with this answer to `_Unwind_RaiseException` a panic
/// ends the process.
const END_OF_STACK: c_int = 5;

extern "C" fn absent() -> c_int {
    END_OF_STACK
}

/// Looks every function up, so that a later panic takes no lock of the loader.
/// False where the process can have no unwinder.
pub fn prepare() -> bool {
    (0..COUNT).all(|index| !ptr::eq(fetch(index), absent as *const c_void))
}

extern "C" fn fetch(index: usize) -> *const c_void {
    // SAFETY: a C string; libgcc_s has no constructor that matters to anyone.
    let library = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
    let found = match library.is_null() {
        true => ptr::null_mut(),
        false => resolve::symbol(library, NAMES[index]),
    };
    if found.is_null() {
        return absent as *const c_void;
    }
    FOUND[index].store(found, Ordering::Release);
    found
}

/// Defines each name, hidden: jumps to what was found, at the first call after
/// `fetch` with the caller's (at most three) arguments kept.
macro_rules! forward {
    ($($name:literal $index:literal),* $(,)?) => {
        const NAMES: [&CStr; COUNT] = [$(
            match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name holds a zero byte"),
            }
        ),*];

        $(
            const _: () = assert!($index < COUNT);

            #[cfg(target_arch = "x86_64")]
            core::arch::global_asm!(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                "endbr64",
                concat!("mov r11, [rip + {found} + 8 * ", $index, "]"),
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2: push rdi",
                "push rsi",
                "push rdx",
                concat!("mov edi, ", $index),
                "call {fetch}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                found = sym FOUND,
                fetch = sym fetch,
            );

            #[cfg(target_arch = "aarch64")]
            core::arch::global_asm!(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                "hint #34", // bti c
                "adrp x16, {found}",
                "add x16, x16, :lo12:{found}",
                concat!("ldr x16, [x16, #8 * ", $index, "]"),
                "cbz x16, 2f",
                "br x16",
                "2: stp x29, x30, [sp, #-48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                concat!("mov w0, #", $index),
                "bl {fetch}",
                "mov x16, x0",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #48",
                "br x16",
                found = sym FOUND,
                fetch = sym fetch,
            );
        )*
    };
}

forward! {
    "_Unwind_Backtrace" 0,
    "_Unwind_DeleteException" 1,
    "_Unwind_GetDataRelBase" 2,
    "_Unwind_GetIP" 3,
    "_Unwind_GetIPInfo" 4,
    "_Unwind_GetLanguageSpecificData" 5,
    "_Unwind_GetRegionStart" 6,
    "_Unwind_GetTextRelBase" 7,
    "_Unwind_RaiseException" 8,
    "_Unwind_Resume" 9,
    "_Unwind_SetGR" 10,
    "_Unwind_SetIP" 11,
}
