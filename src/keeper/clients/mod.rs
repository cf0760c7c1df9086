//! Those who are connected: what they say, how it is known that they have ended, what ends with
//! them, and what they have not read or leave to be closed. What they ask for is answered in
//! `requests`.

pub mod client;
pub mod ends;
pub mod hear;
pub mod late;
pub mod leaving;
pub mod process;
pub mod strays;
pub mod unread;
