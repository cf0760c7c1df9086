//! Names of shared memory, as verbs see them: from the keeper, or from Redis.

pub mod chosen;
pub mod entry;
pub mod nodes;
pub mod reach;
