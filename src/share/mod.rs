//! Memory that several processes of a host use: what a handle looks like, what
//! is said to the keeper, and how packets with descriptors travel. Makes no
//! call of CUDA, starts no process and decides no right: `keeper` does that.

pub mod client;
pub mod handle;
pub mod place;
pub mod protocol;
pub mod socket;
pub mod wire;
