//! A program that is run with the library, or without: its environment, its signals and its end,
//! what it measured and recorded.

pub mod child;
pub mod measure;
pub mod preload;
pub mod record;
pub mod unstarted;
