//! The two machine-code shapes that Rust functions cannot have, for x86-64
//! and aarch64. Each keeps the host's stack and return address as they were.
//!
//! - [`tail_jump!`]: a function of up to two arguments that is filtered and
//!   then *jumps* to the real one, so that the real one sees the return address
//!   of the original caller (`dlsym(RTLD_NEXT, ...)` depends on it).
//! - [`pass_caller!`]: an entry that adds the caller's return address as one
//!   more argument and jumps to a Rust function.

use std::ffi::c_void;

/// What a filter decided: jump on to `jump`, or where that is null return
/// `value`. Two words, so it travels in two registers.
#[repr(C)]
pub struct Next {
    value: *mut c_void,
    jump: *mut c_void,
}

impl Next {
    /// Return this value to the caller.
    pub fn answer(value: *mut c_void) -> Self {
        let jump = std::ptr::null_mut();
        Self { value, jump }
    }

    /// Go on to this function with the caller's own arguments.
    pub fn jump(jump: *mut c_void) -> Self {
        let value = std::ptr::null_mut();
        Self { value, jump }
    }
}

/// Exports `$name(a, b)`: asks `$filter(a, b, return_address) -> Next`.
#[macro_export]
macro_rules! tail_jump {
    ($(#[$meta:meta])* $name:ident, $filter:path) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "endbr64",
                "push rdi",
                "push rsi",
                "sub rsp, 8",
                "mov rdx, [rsp + 24]",
                "call {filter}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "test rdx, rdx",
                "jz 2f",
                "jmp rdx",
                "2: ret",
                filter = sym $filter,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "hint #34", // bti c
                "stp x29, x30, [sp, #-32]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "mov x2, x30",
                "bl {filter}",
                "mov x16, x1",
                "cbz x16, 2f",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #32",
                "br x16",
                "2: ldp x29, x30, [sp], #32",
                "ret",
                filter = sym $filter,
            );
        }
    };
}

/// Exports `$name`, which calls `$body` with the caller's return address in the
/// argument register given (the one behind the last real argument).
#[macro_export]
macro_rules! pass_caller {
    ($(#[$meta:meta])* $name:ident, $body:path, $x86_64:literal, $aarch64:literal) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "endbr64",
                concat!("mov ", $x86_64, ", [rsp]"),
                "jmp {body}",
                body = sym $body,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "hint #34", // bti c
                concat!("mov ", $aarch64, ", x30"),
                "b {body}",
                body = sym $body,
            );
        }
    };
}
