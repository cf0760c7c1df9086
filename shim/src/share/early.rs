//! A connection to the keeper before anybody asks: of programs that will, by
//! their rules or because they refer to the interface. The keeper hears who
//! they are while they start, so that their first opening is one question and
//! one answer, and the pool that it needs is made with the context, its driver
//! calls rehearsed. Starts no keeper, and never waits: where none listens now,
//! the first request finds or starts one.

use std::sync::atomic::{AtomicBool, Ordering};

use memcuda_core::driver::Context;
use memcuda_core::share::client::Client;

use super::{keeper, who};
use crate::device::Device;
use crate::engine::Engine;
use crate::{dynamic, engine, pool, worker};

/// What the names of the interface's functions begin with.
const INTERFACE: &[u8] = b"memcuda_";

/// A function of the interface was called.
static CALLED: AtomicBool = AtomicBool::new(false);
/// A connection was begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// A program that was not built with the interface calls it: the connection is
/// made now, or once CUDA starts.
pub fn interface_called() {
    if !CALLED.swap(true, Ordering::Relaxed)
        && let Some(engine) = engine::running()
    {
        dial(engine);
    }
}

/// CUDA has started.
pub fn cuda_started(engine: &Engine) {
    if !engine.rules.is_empty()
        || CALLED.load(Ordering::Relaxed)
        || dynamic::program_uses(INTERFACE)
    {
        dial(engine);
    }
}

/// The program has a context of the device.
pub fn context_made(engine: &Engine, context: Context, device: &Device) {
    if BEGUN.load(Ordering::Relaxed) && device.made().is_none() {
        keeper::settle();
        // What fails here fails again where it is needed, and is told there.
        let _ = engine.calls.within(context, || {
            if let Some(pool) = pool::of(engine, device) {
                pool.reserve_ahead();
                pool.rehearse();
            }
        });
    }
}

fn dial(engine: &Engine) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !engine.lends() || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let Ok(socket) = who::socket(engine) else {
        return;
    };
    if who::trusted(engine, &socket).is_ok()
        && let Ok(dialled) = Client::dial_now(&socket, std::process::id(), &who::command())
    {
        keeper::keep(dialled);
        worker::start();
        BEGUN.store(true, Ordering::Relaxed);
    }
}
