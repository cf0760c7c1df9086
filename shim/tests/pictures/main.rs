//! Pictures of preloaded processes on the simulated GPU: what they show to who
//! asks, and what they report when they have no memory left.

#[path = "../support/mod.rs"]
mod support;

mod holder;
mod reports;
mod shown;
