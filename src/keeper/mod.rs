//! The keeper: one process of a user or a host that keeps shared memory by its
//! descriptors, and is the authority for names, generations and leases. One
//! thread and one epoll loop own all of its state (`serve`); a second, tiny
//! process stands by with duplicates of every descriptor (`standby`). Loads
//! nothing of CUDA and maps no memory that it keeps.

mod awake;
mod calendar;
mod clients;
mod clock;
mod entries;
mod pages;
mod place;
pub mod redis;
mod refusal;
pub mod registry;
mod requests;
mod serve;
mod start;
mod state;
mod succession;
mod token;
mod turn;
mod versions;

pub use awake::AFTER_REQUEST;
pub use clients::process::node;
pub use refusal::Refusal;
pub use start::launch::Launch;
pub use start::options::Options;
pub use start::{Part, run, stand_by};
