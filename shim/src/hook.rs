//! What a hook is, and the macro that makes one: declared once, it is an
//! exported symbol, a row of the substitution table, and a slot for the real
//! function.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use memcuda_core::driver::Code;

use crate::libraries::{aside, resolve, scope};

/// A hooked driver entry point.
pub struct Hook {
    /// The symbol that the driver exports, with every suffix.
    pub symbol: &'static CStr,
    /// The name by which `cuGetProcAddress` knows it.
    pub name: &'static str,
    /// The CUDA version (`1000 * major + 10 * minor`) that introduced this
    /// signature.
    pub since: u32,
    /// The spelling whose default stream is the calling thread's (`_ptsz`).
    pub per_thread: bool,
    /// This library's exported function of that name.
    pub exported: unsafe extern "C" fn(),
    /// What a program that looks the function up gets instead.
    pub entry: Entry,
    /// The driver's own function, null while the driver is not loaded; where this library
    /// stands aside, that of the one that stands in for it. A library that has functions of
    /// these names, which load the driver when they are called (TensorFlow's), is called itself
    /// only where there is none.
    pub real: &'static AtomicPtr<c_void>,
}

/// What a program that looks a function up gets instead of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The exported function.
    Exported,
    /// A `cuMemAlloc_v2` that knows the asking module.
    Allocate,
    /// A `cuMemFree_v2` that knows the asking module.
    Free,
}

/// What a hook answers where the driver has no such function.
pub const ABSENT: Code = Code::NOT_FOUND;

impl Hook {
    /// The driver's own function; null while there is none.
    #[inline]
    pub fn real(&self) -> *mut c_void {
        let known = self.real.load(Ordering::Acquire);
        match known.is_null() {
            true => self.find(),
            false => known,
        }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let mut found = aside::other().map_or(ptr::null_mut(), |it| it.look_up(self.symbol));
        if found.is_null() {
            let mut driver = resolve::driver();
            if driver.is_null() {
                let standing_in = scope::elsewhere(self.exported as *const c_void, self.symbol);
                if !standing_in.is_null() {
                    driver = resolve::driver_for_another();
                }
                if driver.is_null() {
                    return standing_in;
                }
            }
            found = resolve::symbol(driver, self.symbol);
        }
        // Another thread may know better: what the driver answered to a lookup.
        let null = ptr::null_mut();
        let known = self
            .real
            .compare_exchange(null, found, Ordering::AcqRel, Ordering::Acquire);
        known.map_or_else(|known| known, |_| found)
    }
}

/// A slot for a hook's real function.
pub const fn slot() -> AtomicPtr<c_void> {
    AtomicPtr::new(ptr::null_mut())
}

/// Declares the hooks of one family and `HOOKS`, the list of them:
///
/// ```text
/// hooks! {
///     /// What it does.
///     cuMemFoo_v2 ["cuMemFoo" since 3020] (at: Address) |real, engine| { ... }
/// }
/// ```
///
/// The body runs only while the engine runs and this thread is not inside a
/// hook already; otherwise, and if the body panics, the call goes to the real
/// function (or to `, panicked { ... }` where that is given). `real` is the real
/// function; the arguments are in scope. Behind `hit` the thread may be cancelled where the
/// body does not forbid it.
#[macro_export]
macro_rules! hooks {
    ($(
        $(#[$meta:meta])*
        $symbol:ident [$name:literal since $since:literal $($thread:ident)?] $($hit:ident)?
            ($($arg:ident: $type:ty),* $(,)?)
            |$real:ident, $engine:ident| $body:block $(, panicked $panicked:block)?
    )*) => {
        $(
            $crate::slot! { $symbol [$name since $since $($thread)?] Exported }

            $(#[$meta])*
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($arg: $type),*) -> memcuda_core::driver::Code {
                type Real = unsafe extern "C" fn($($type),*) -> memcuda_core::driver::Code;
                let real = $symbol::HOOK.real();
                if real.is_null() {
                    return $crate::hook::ABSENT;
                }
                /// The driver's function; what it answers is remembered, so that a
                /// panic behind it does not make the program's call twice.
                unsafe extern "C" fn answered($($arg: $type),*) -> memcuda_core::driver::Code {
                    let _held = memcuda_core::driver::cancel::hold();
                    // SAFETY: the driver's function of this name has this
                    // signature, and was there when the hook was entered.
                    let code = unsafe {
                        std::mem::transmute::<*mut std::ffi::c_void, Real>($symbol::HOOK.real())(
                            $($arg),*
                        )
                    };
                    $crate::engine::boundary::answered(code)
                }
                let $real: Real = answered;
                let _held = $crate::held!($($hit)?);
                $crate::engine::boundary::enter(
                    stringify!($symbol),
                    |$engine| $body,
                    || $crate::first_block!(
                        $($panicked)?
                        {
                            // SAFETY: the program's own call, passed on.
                            unsafe { $real($($arg),*) }
                        }
                    ),
                    // SAFETY: the program's own call, passed on.
                    || unsafe { $real($($arg),*) },
                )
            }
        )*

        /// The hooks of this family.
        pub static HOOKS: &[&$crate::hook::Hook] = &[$(&$symbol::HOOK),*];
    };
}

/// Whether a hook's thread may be cancelled.
#[macro_export]
macro_rules! held {
    () => {
        memcuda_core::driver::cancel::hold()
    };
    (hit) => {
        ()
    };
}

/// The first of one or two blocks.
#[macro_export]
macro_rules! first_block {
    ($first:block $($rest:block)?) => {
        $first
    };
}

/// Declares `mod $symbol` with a hook's row and slot.
#[macro_export]
macro_rules! slot {
    ($symbol:ident [$name:literal since $since:literal $($thread:ident)?] $entry:ident) => {
        #[doc = concat!("The row of `", stringify!($symbol), "`.")]
        pub mod $symbol {
            use $crate::hook::{Entry, Hook};

            static REAL: std::sync::atomic::AtomicPtr<std::ffi::c_void> = $crate::hook::slot();

            /// The row.
            pub static HOOK: Hook = Hook {
                symbol: match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($symbol), "\0").as_bytes(),
                ) {
                    Ok(symbol) => symbol,
                    Err(_) => panic!("a symbol has no inner NUL"),
                },
                name: $name,
                since: $since,
                per_thread: $crate::slot!(@ $($thread)?),
                // SAFETY: a function pointer under another signature, only stored.
                exported: unsafe {
                    std::mem::transmute::<*const (), unsafe extern "C" fn()>(
                        super::$symbol as *const (),
                    )
                },
                entry: Entry::$entry,
                real: &REAL,
            };
        }
    };
    (@) => { false };
    (@ per_thread) => { true };
}
