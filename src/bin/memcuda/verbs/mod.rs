//! What the command can be told to do: one file a verb, or a folder.

pub mod compare;
pub mod completions;
pub mod doctor;
pub mod env;
pub mod explain;
pub mod gc;
pub mod keeper;
pub mod keeper_allocate;
pub mod keeper_ask;
pub mod ls;
pub mod man;
pub mod persist;
pub mod replay;
pub mod rm;
pub mod run;
pub mod show;
pub mod snapshot;
pub mod stat;
pub mod top;
pub mod trace;
pub mod web;
