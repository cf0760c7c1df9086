//! The machine-code shapes that Rust functions cannot have, for x86-64 and
//! aarch64. Each keeps the host's stack and return address as they were.
//!
//! - [`tail_jump!`]: a function of up to two arguments that is filtered and
//!   then *jumps* to the real one, so that the real one sees the return address
//!   of the original caller (`dlsym(RTLD_NEXT, ...)` depends on it).
//! - [`tail_jump_with!`]: the same for functions of up to three arguments, of
//!   which the filter replaces one (`dlopen` depends on the caller as well).
//! - [`pass_caller!`]: an entry that adds the caller's return address as one
//!   more argument and jumps to a Rust function.
//! - [`pass_caller_once_relocated!`]: the same for what may be called while the loader is at work.
//! - [`late!`]: a name for this library alone, of a function elsewhere that is
//!   looked up when it is first called.

use std::ffi::c_void;

/// What a filter decided: jump on to `jump`, or where that is null return
/// `value`. Two words, so it travels in two registers.
///
/// Of [`tail_jump_with!`](crate::tail_jump_with!): `value` is the new argument.
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

    /// Go on to this function with `value` as the argument that is replaced.
    pub fn jump_with(jump: *mut c_void, value: usize) -> Self {
        let value = value as *mut c_void;
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

/// Exports `$name(a, b, c)`: asks `$filter(a, b, c) -> Next`, puts its value
/// into the argument register given and jumps on. Where there is nothing to
/// jump to, the answer is null. On aarch64 a fourth argument is kept as well: there
/// a structure of more than two words is passed by its address, in a register.
#[macro_export]
macro_rules! tail_jump_with {
    ($(#[$meta:meta])* $name:ident, $filter:path, $x86_64:literal, $aarch64:literal) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "endbr64",
                "push rdi",
                "push rsi",
                "push rdx",
                "call {filter}",
                "mov r11, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                concat!("mov ", $x86_64, ", rax"),
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2: xor eax, eax",
                "ret",
                filter = sym $filter,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "hint #34", // bti c
                "stp x29, x30, [sp, #-48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "bl {filter}",
                "mov x16, x1",
                "mov x17, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                concat!("mov ", $aarch64, ", x17"),
                "cbz x16, 2f",
                "br x16",
                "2: mov x0, #0",
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

/// [`pass_caller!`] for a function that is called before the loader has relocated this library:
/// by what chooses between functions (an IFUNC's resolver) in a library that is relocated
/// first. No function of another library can be called then, and the answer is null.
#[macro_export]
macro_rules! pass_caller_once_relocated {
    ($(#[$meta:meta])* $name:ident, $body:path, $x86_64:literal, $aarch64:literal) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            /// The body's address, once the loader has written it here.
            #[used]
            static RELOCATED: unsafe extern "C" fn(*const c_char, usize) -> *const c_char = $body;
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "endbr64",
                "lea rax, [rip + {body}]",
                "cmp rax, [rip + {relocated}]",
                "jne 2f",
                concat!("mov ", $x86_64, ", [rsp]"),
                "jmp {body}",
                "2: xor eax, eax",
                "ret",
                body = sym $body,
                relocated = sym RELOCATED,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "hint #34", // bti c
                "adrp x16, {body}",
                "add x16, x16, :lo12:{body}",
                "adrp x17, {relocated}",
                "ldr x17, [x17, :lo12:{relocated}]",
                "cmp x16, x17",
                "b.ne 2f",
                concat!("mov ", $aarch64, ", x30"),
                "b {body}",
                "2: mov x0, #0",
                "ret",
                body = sym $body,
                relocated = sym RELOCATED,
            );
        }
    };
}

/// Defines each of `$count` names, hidden, as a jump to what `$find(name)` finds
/// at the first call; the caller's (at most four) arguments are kept. Where it
/// finds nothing the call is `$absent()`. Makes `NAMES`, and `fetch(index)` that
/// looks one up ahead of its first call.
#[macro_export]
macro_rules! late {
    ($count:literal from $find:path, else $absent:path: $($name:literal $index:literal),* $(,)?) => {
        const NAMES: [&std::ffi::CStr; $count] = [$(
            match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name holds a zero byte"),
            }
        ),*];

        static FOUND: [std::sync::atomic::AtomicPtr<std::ffi::c_void>; $count] =
            [const { std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()) }; $count];

        extern "C" fn fetch(index: usize) -> *const std::ffi::c_void {
            let found: *mut std::ffi::c_void = $find(NAMES[index]);
            if found.is_null() {
                return $absent as *const std::ffi::c_void;
            }
            FOUND[index].store(found, std::sync::atomic::Ordering::Release);
            found
        }

        $(
        const _: () = assert!($index < $count);

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
            "push rcx",
            "sub rsp, 8",
            concat!("mov edi, ", $index),
            "call {fetch}",
            "add rsp, 8",
            "pop rcx",
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
            "stp x2, x3, [sp, #32]",
            concat!("mov w0, #", $index),
            "bl {fetch}",
            "mov x16, x0",
            "ldp x2, x3, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            "br x16",
            found = sym FOUND,
            fetch = sym fetch,
        );
        )*
    };
}
