//! The macro that declares a table of driver entry points once: symbol, name,
//! signature, and whether the table is unusable without it. Looks nothing up
//! itself: the caller passes the resolver.

/// Declares a struct of function pointers and its `resolve`.
///
/// A missing `required` entry point makes `resolve` fail with its symbol; a
/// missing `optional` one is `None`, an error only for who uses it.
#[macro_export]
macro_rules! entry_points {
    (
        $(#[$meta:meta])*
        $vis:vis struct $table:ident;
        required { $($symbol:literal $name:ident($($arg:ty),* $(,)?);)* }
        optional { $($o_symbol:literal $o_name:ident($($o_arg:ty),* $(,)?);)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        $vis struct $table {
            $(
                #[doc = concat!("`", $symbol, "`; required.")]
                $vis $name: unsafe extern "C" fn($($arg),*) -> $crate::driver::Code,
            )*
            $(
                #[doc = concat!("`", $o_symbol, "`; optional.")]
                $vis $o_name: Option<unsafe extern "C" fn($($o_arg),*) -> $crate::driver::Code>,
            )*
        }

        impl $table {
            /// Fills the table from `lookup`; the error is the symbol of a
            /// required entry point that the driver lacks.
            ///
            /// # Safety
            /// What `lookup` returns for a symbol is null or the driver's
            /// function of that name, which stays loaded for ever.
            $vis unsafe fn resolve(
                lookup: &dyn Fn(&std::ffi::CStr) -> *mut std::ffi::c_void,
            ) -> std::result::Result<Self, &'static str> {
                let find = |symbol: &'static str| {
                    let name = std::ffi::CStr::from_bytes_with_nul(symbol.as_bytes());
                    name.map_or(std::ptr::null_mut(), lookup)
                };
                Ok(Self {
                    $(
                        // SAFETY: an `Option` of a function pointer has the layout of a
                        // nullable pointer, and the caller vouches for the signature.
                        $name: unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                Option<unsafe extern "C" fn($($arg),*) -> $crate::driver::Code>,
                            >(find(concat!($symbol, "\0")))
                        }
                        .ok_or($symbol)?,
                    )*
                    $(
                        // SAFETY: as above.
                        $o_name: unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                Option<unsafe extern "C" fn($($o_arg),*) -> $crate::driver::Code>,
                            >(find(concat!($o_symbol, "\0")))
                        },
                    )*
                })
            }
        }
    };
}
