//! What a successor goes on with: the descriptors, the journal of who has what, the standby and
//! systemd, which have duplicates of them; and the processes around this one.

pub mod descriptors;
pub mod journal;
pub mod key;
pub mod orphans;
pub mod relative;
pub mod standby;
pub mod systemd;
