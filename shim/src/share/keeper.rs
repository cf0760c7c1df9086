//! The process's one connection to the keeper, for all who ask. It begins with
//! the first request, and a keeper is started then if the settings say so. What
//! is known of it is the `line`; what the keeper says unasked is told to who has
//! something to do about it.
//!
//! Makes no driver call. The lock is held while an answer is waited for; under
//! it, no other one is taken.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use memcuda_core::driver::cancel;
use memcuda_core::lock;
use memcuda_core::share::client::Dialled;
use memcuda_core::share::protocol::{Code, Event, Generation, Request};
use memcuda_core::waiting::Waiting;

pub use super::epoch::{keepers, now as epoch};
use super::line::Line;
pub use super::line::{Answer, Resumed, in_child};
use super::{Error, exports, first};
use crate::engine::Engine;

/// Pause of who has only so much time for the lock.
const PAUSE: Duration = Duration::from_micros(200);

/// Pause between two questions for what may come back.
const AGAIN: Duration = Duration::from_millis(20);

static LINE: Mutex<Option<Line>> = Mutex::new(None);

/// Asks the keeper, and waits for the answer; what that says of leases is
/// counted. Where the connection was lost meanwhile the request is made again
/// over a new one, if it may be made twice.
pub fn request(
    engine: &Engine,
    request: Request,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Answer, Error> {
    let _held = cancel::hold();
    over(engine, lock(), |line| {
        let answer = line.ask(engine, &request, descriptors);
        line.count(&request, &answer);
        answer
    })
}

/// The same for what leaves nothing behind, by somebody who has only so much time; `None`
/// where there is no answer by then. Where there is no connection one is made as for any.
pub fn request_within(
    engine: &Engine,
    request: Request,
    patience: Duration,
) -> Option<Result<Answer, Error>> {
    let _held = cancel::hold();
    let mut waiting = Waiting::begin();
    // Somebody else may be waiting for an answer for long.
    let line = loop {
        match try_lock() {
            Some(line) => break line,
            None if waiting.lasted() < patience => waiting.pause(PAUSE),
            None => return None,
        }
    };
    let left = patience.saturating_sub(waiting.lasted());
    over(engine, line, |line| line.ask_for(engine, request, left))
}

/// Memory by its handle. Where the keeper began anew a moment ago its exporter may have to come
/// back first: so long it is asked again.
pub fn import(engine: &Engine, generation: Generation) -> Result<Answer, Error> {
    let _held = cancel::hold();
    let mut waiting = Waiting::begin();
    loop {
        let answer = request(engine, Request::Import { generation }, &[]);
        let is_unknown = matches!(answer, Err(Error::Refused(Code::NotFound, _)));
        let is_young = |line: &Line| line.is_young(waiting.lasted());
        if !is_unknown || !lock().as_ref().is_some_and(is_young) {
            return answer;
        }
        waiting.pause(AGAIN);
    }
}

/// The same as [`request`], in a process that has asked nothing yet: the request goes out with
/// the word of who asks, and what is to be made anyway is made `meanwhile`, with
/// no lock held. In any other process `meanwhile` is not run. For requests that
/// may be made twice.
pub fn request_first(
    engine: &Engine,
    request: Request,
    meanwhile: impl FnOnce(),
) -> Result<Answer, Error> {
    match first::ask(engine, &request, meanwhile) {
        Some(answer) => answer,
        None => self::request(engine, request, &[]),
    }
}

/// The host and its boot, as the keeper says, which is found or started for it.
pub fn node(engine: &Engine) -> Result<u64, Error> {
    let _held = cancel::hold();
    over(engine, lock(), |line| {
        line.connect(engine)?;
        Ok(line.node())
    })
}

/// For the thread that watches: the descriptor that tells of events and of the
/// end, where there is one.
pub fn descriptor() -> Option<i32> {
    try_lock()?.as_ref()?.descriptor()
}

/// Hears what the keeper has said, and takes the leases up again where the
/// connection was lost. False where it is in use, so that nothing was done.
pub fn look(engine: &Engine) -> bool {
    let (resumed, events) = {
        let Some(mut line) = try_lock() else {
            return false;
        };
        let Some(line) = line.as_mut() else {
            return true;
        };
        let events = line.events();
        if is_needed(line) {
            line.reach_again(engine);
        }
        (line.resumed.take(), events)
    };
    tell(engine, resumed, events);
    true
}

/// Is there anything that a keeper must be found for?
pub fn is_missing() -> bool {
    try_lock().is_some_and(|line| line.as_ref().is_some_and(is_needed))
}

fn is_needed(line: &Line) -> bool {
    line.is_missed() || !line.is_connected() && exports::any_parked()
}

/// Keeps a connection for the first request, where there is none.
pub fn keep(begun: Dialled) {
    lock().get_or_insert_default().keep(begun);
}

/// Hears what the keeper said to the connection that is kept, where it has; the
/// first request is then as any. Never waits.
pub fn settle() {
    if let Some(mut line) = try_lock() {
        line.get_or_insert_default().settle();
    }
}

/// Asks over the connection, and tells afterwards what the keeper has said unasked.
fn over<T>(
    engine: &Engine,
    mut line: MutexGuard<'_, Option<Line>>,
    ask: impl FnOnce(&mut Line) -> T,
) -> T {
    let known = line.get_or_insert_default();
    let (answer, resumed, events) = (ask(known), known.resumed.take(), known.events());
    drop(line);
    tell(engine, resumed, events);
    answer
}

/// Tells what the keeper has said unasked.
fn tell(engine: &Engine, resumed: Option<Resumed>, events: Vec<Event>) {
    if let Some(resumed) = resumed {
        // What is exported it is given again.
        let lost = resumed.lost.iter().filter(|lost| !exports::is_own(**lost));
        let lost = lost.count();
        if lost > 0 {
            crate::log!(
                Warn,
                "the keeper knows nothing more of {lost} of what this process shares: it stays mapped \
                 here, and other processes do not find it",
            );
        }
        exports::resumed(engine, &resumed);
    }
    for event in events {
        match event {
            Event::LetGo(generation) => exports::let_go(engine, generation),
        }
    }
}

pub(super) fn lock() -> MutexGuard<'static, Option<Line>> {
    lock::lock(&LINE)
}

fn try_lock() -> Option<MutexGuard<'static, Option<Line>>> {
    match LINE.try_lock() {
        Ok(line) => Some(line),
        Err(TryLockError::Poisoned(line)) => Some(line.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
