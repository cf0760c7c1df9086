//! Types of elements, by the names that deepx, torch and numpy share.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident $text:literal $bytes:literal)*) => {
        /// The type of an element.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Dtype {
            $($(#[$doc])* $variant),*
        }

        impl Dtype {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// Bytes of an element.
            pub fn bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes),* }
            }
        }
    };
}

dtypes! {
    /// IEEE 754, 64 bits.
    F64 "f64" 8
    /// IEEE 754, 32 bits.
    F32 "f32" 4
    /// IEEE 754, 16 bits.
    F16 "f16" 2
    /// Upper half of an `f32`.
    Bf16 "bf16" 2
    /// 8 bits: 4 of exponent, 3 of mantissa, finite.
    F8E4m3 "f8e4m3" 1
    /// 8 bits: 5 of exponent, 2 of mantissa.
    F8E5m2 "f8e5m2" 1
    /// Signed, 64 bits.
    I64 "i64" 8
    /// Signed, 32 bits.
    I32 "i32" 4
    /// Signed, 16 bits.
    I16 "i16" 2
    /// Signed, 8 bits.
    I8 "i8" 1
    /// Unsigned, 64 bits.
    U64 "u64" 8
    /// Unsigned, 32 bits.
    U32 "u32" 4
    /// Unsigned, 16 bits.
    U16 "u16" 2
    /// Unsigned, 8 bits.
    U8 "u8" 1
    /// One byte, 0 or 1.
    Bool "bool" 1
    /// Two `f32`.
    C64 "c64" 8
    /// Two `f64`.
    C128 "c128" 16
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Dtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut all = Self::ALL.iter();
        all.find(|dtype| dtype.name() == text)
            .copied()
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
                let shown: String = text.escape_debug().take(40).collect();
                Error::new(format!(
                    "the dtype \"{shown}\" is not known; accepted: {}",
                    names.join(" ")
                ))
            })
    }
}

/// Bytes of a dense tensor; the error says which number is out of bounds. A
/// tensor without extents is one element, one with an extent of 0 has no bytes
/// and is refused.
pub fn bytes_of(dtype: Dtype, shape: &[u64]) -> Result<u64> {
    let product = shape
        .iter()
        .try_fold(dtype.bytes(), |bytes, &extent| bytes.checked_mul(extent));
    match product {
        Some(bytes) if bytes > 0 && bytes <= i64::MAX as u64 => Ok(bytes),
        Some(0) => Err(Error::new(format!(
            "the shape {shape:?} has no elements; accepted: extents of 1 and more"
        ))),
        _ => Err(Error::new(format!(
            "the shape {shape:?} of {dtype} is larger than an address; accepted: up to 2^63-1 bytes"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_is_found_by_its_name() {
        for &dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        assert!(
            "float"
                .parse::<Dtype>()
                .unwrap_err()
                .to_string()
                .contains("bf16")
        );
    }

    #[test]
    fn bytes_follow_from_the_shape_or_are_refused() {
        assert_eq!(bytes_of(Dtype::Bf16, &[2, 3, 4]), Ok(48));
        assert_eq!(bytes_of(Dtype::F64, &[]), Ok(8));
        assert!(bytes_of(Dtype::F32, &[3, 0]).is_err());
        assert!(bytes_of(Dtype::F32, &[u64::MAX, 2]).is_err());
        assert!(bytes_of(Dtype::U8, &[1 << 63]).is_err());
    }
}
