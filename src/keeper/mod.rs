//! The keeper: one process of a user or a host that keeps shared memory by its
//! descriptors, and is the authority for names, generations and leases. One
//! thread and one epoll loop own all of its state (`serve`); a second, tiny
//! process stands by with duplicates of every descriptor (`standby`). Loads
//! nothing of CUDA and maps no memory that it keeps.

mod access;
mod answer;
mod awake;
mod calendar;
mod client;
mod clock;
mod descriptors;
mod ends;
mod entries;
mod hear;
mod journal;
mod key;
mod late;
mod launch;
mod leaving;
mod listen;
mod memory;
mod options;
mod orphans;
mod pages;
mod place;
mod process;
pub mod redis;
mod refusal;
pub mod registry;
mod relative;
mod room;
mod rules;
mod serve;
mod standby;
mod start;
mod strays;
mod systemd;
mod token;
mod turn;
mod unread;
mod versions;

pub use awake::AFTER_REQUEST;
pub use launch::Launch;
pub use options::Options;
pub use process::node;
pub use refusal::Refusal;
pub use start::{Part, run, stand_by};
