//! Is torch to register all its memory with NCCL? It registers none of expandable segments.
//! Reads the variable as torch does, which asks for it with its first communicator.

use std::ffi::CStr;

use crate::process::environment;

/// The first that is set counts alone.
const VARIABLES: [&CStr; 2] = [
    c"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
    c"NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
];

/// Why torch is not to have pages.
pub fn obstacle() -> Option<&'static str> {
    let set = VARIABLES.into_iter().find_map(environment::raw);
    set.is_some_and(is_true)
        .then_some("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK registers segments alone")
}

fn is_true(value: &CStr) -> bool {
    let words: [&[u8]; 5] = [b"1", b"y", b"yes", b"t", b"true"];
    let value = value.to_bytes();
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yes_is_what_torch_takes_for_it() {
        assert!([c"1", c"True", c"YES"].into_iter().all(is_true));
        assert!(![c"", c"0", c"2", c"no", c"on"].into_iter().any(is_true));
    }
}
