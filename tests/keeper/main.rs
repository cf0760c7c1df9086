//! `memcuda keeper` from outside: the real program, clients of the protocol, and
//! memory files in the place of GPU memory.

mod awake;
mod calendar;
mod claims;
mod containers;
mod crashes;
mod door;
mod faults;
mod fuzz;
mod journal;
mod log;
mod names;
mod no_pidfd;
mod places;
#[path = "../support/random.rs"]
mod random;
mod requests;
mod rights;
mod shares;
mod start;
mod storm;
mod strays;
mod support;
mod systemd;
mod unsent;
mod worker;
