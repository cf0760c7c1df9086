//! Pictures of preloaded processes on the simulated GPU: what they show to who
//! asks, and what they report when they have no memory left.

#[path = "../support/signals.rs"]
mod signals;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "what other tests need as well")]
mod support;

mod holder;
mod reports;
mod shown;
