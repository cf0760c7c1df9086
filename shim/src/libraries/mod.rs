//! The libraries of the process: which are loaded, what they export and refer to, which of
//! them code belongs to, where the real functions are. It reads them and changes nothing in
//! them.

pub mod aimdo;
pub mod aside;
pub mod caller;
pub mod dynamic;
pub mod listener;
pub mod loader;
pub mod modules;
pub mod old_libc;
pub mod resolve;
pub mod routes;
pub mod scope;
pub mod ucx;
pub mod unwind;
