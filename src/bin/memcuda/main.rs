//! The `memcuda` command: one file a verb.

fn main() {}
