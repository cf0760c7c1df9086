//! A connection to the keeper before anybody asks: of programs that will, by
//! their rules or because they refer to the interface. It is begun with their
//! first context: the keeper hears who they are and stays awake for their first
//! question, while the pool that this needs is made and its driver calls are
//! rehearsed. So the first opening is one question and one answer. Starts no
//! keeper, and never waits: where none listens now, the first request finds or
//! starts one.

use std::sync::atomic::{AtomicBool, Ordering};

use memcuda_core::driver::Context;
use memcuda_core::share::client::Client;

use super::{keeper, who};
use crate::engine::Engine;
use crate::engine::device::Device;
use crate::engine::worker;
use crate::libraries::dynamic;
use crate::{engine, pool};

/// What the names of the interface's functions begin with.
const INTERFACE: &[u8] = b"memcuda_";

/// The program wants names.
static WANTED: AtomicBool = AtomicBool::new(false);
/// It has a context, or had.
static CONTEXT: AtomicBool = AtomicBool::new(false);
/// A connection was begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// A program that was not built with the interface calls it: the connection is
/// made now, or with its first context.
pub fn interface_called() {
    // Of two threads that each tell and then ask, one hears the other.
    if !WANTED.swap(true, Ordering::SeqCst)
        && CONTEXT.load(Ordering::SeqCst)
        && let Some(engine) = engine::running()
    {
        dial(engine);
    }
}

/// CUDA has started.
pub fn cuda_started(engine: &Engine) {
    if !engine.rules.is_empty() || dynamic::program_uses(INTERFACE) {
        WANTED.store(true, Ordering::SeqCst);
    }
}

/// The program has a context of the device.
pub fn context_made(engine: &Engine, context: Context, device: &Device) {
    CONTEXT.store(true, Ordering::SeqCst);
    if WANTED.load(Ordering::SeqCst) {
        dial(engine);
    }
    if BEGUN.load(Ordering::Relaxed) && device.pool().is_none() {
        // What fails here fails again where it is needed, and is told there.
        let _ = engine.calls.within(context, || {
            if let Some(pool) = pool::of(engine, device) {
                pool.reserve_ahead();
                pool.rehearse();
            }
        });
        keeper::settle();
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
