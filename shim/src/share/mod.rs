//! Memory that this process shares with others: what it exports, what it has
//! open of theirs, and the keeper that stands between them. Nothing here runs
//! before a program shares something, but for the connection of programs that
//! will (`early`).

pub mod child;
pub mod early;
mod epoch;
pub mod exports;
mod first;
pub mod held;
pub mod keeper;
mod line;
pub mod make;
mod start;
mod who;

use memcuda_core::driver::Context;
use memcuda_core::share::protocol::{DeviceId, Event};

use crate::device::Device;
use crate::engine::Engine;
use crate::names;

/// The device with this identity, if the process sees it.
pub fn device(engine: &Engine, id: DeviceId) -> Option<&Device> {
    engine
        .devices
        .iter()
        .find(|device| device.uuid == Some(id.0))
}

/// A context is gone: what was opened in it is closed, its own memory ends by
/// `ends`, and of what was exported of that the keeper is told.
pub fn context_ended(engine: &Engine, context: Context, ends: impl FnOnce()) {
    held::context_ended(engine, context);
    names::lifetime::context_ended(engine, context);
    ends();
    exports::withdraw_freed(engine);
}

/// Takes note of what the keeper said unasked.
fn hear(engine: &Engine, events: Vec<Event>) {
    for event in events {
        match event {
            Event::LetGo(generation) => exports::let_go(engine, generation),
        }
    }
}
