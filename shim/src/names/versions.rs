//! Versions of a name: published and waited for, on the host or in the order of
//! a stream. The page with them is fetched when somebody first asks.

use std::sync::Arc;
use std::time::Duration;

use memcuda_core::driver::{Code, Stream};
use memcuda_core::lock::lock;
use memcuda_core::share::protocol::{self, Reply, Request};
use memcuda_core::waiting::Waiting;

use super::Failure;
use super::table::Mapped;
use super::timeline::{By, MOST, Page, Taken};
use crate::engine::Engine;
use crate::share::{self, keeper};

/// A wait on the host looks without a pause for so long, then ever less often.
const BUSY: Duration = Duration::from_micros(20);
/// No look takes less.
const SPIN: Duration = Duration::from_nanos(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// From then on it also asks whether the name is still there,
const DOUBT: Duration = Duration::from_millis(20);
/// for no longer than this, in which no version is seen,
const QUESTION: Duration = Duration::from_millis(50);
/// and again after this where a keeper did not answer.
const AGAIN: Duration = Duration::from_millis(500);
/// A keeper that is well has given the page by then, also to who has no time to wait.
const PROMPT: Duration = Duration::from_millis(500);

/// The page of a name, by somebody who waits for no longer than this where it says so.
fn page(engine: &Engine, mapped: &Mapped, longest: Option<Duration>) -> Result<Arc<Page>, Failure> {
    let known = || lock(&mapped.page);
    let found = known().clone();
    if let Some(page) = found {
        return Ok(page);
    }
    // Not locked while it is asked for: who only looks at what is known waits for nobody.
    let generation = mapped.entry.generation;
    let request = Request::Timeline { generation };
    let answer = match longest {
        None => Some(keeper::request(engine, request, &[])),
        Some(longest) => keeper::request_within(engine, request, longest.max(PROMPT)),
    };
    let late = || Failure::Timeout(format!("no keeper told the versions of {}", mapped.name()));
    let (_, files) = answer.ok_or_else(late)??;
    let page = files
        .first()
        .and_then(Page::open)
        .ok_or_else(Failure::odd)?;
    Ok(known().get_or_insert_with(|| Arc::new(page)).clone())
}

/// The newest version that was published, as far as it is known without asking
/// anybody.
pub fn known(mapped: &Mapped) -> u64 {
    let page = lock(&mapped.page);
    page.as_ref()
        .map_or(mapped.entry.version, |page| page.newest())
}

fn take(mapped: &Mapped, page: &Page, version: u64) -> Result<Taken, Failure> {
    if !mapped.spot.write {
        let denied = format!("{} was opened for reading only", mapped.name());
        return Err(Failure::Refused(protocol::Code::Denied, denied));
    }
    if version == 0 {
        return page.take_next().ok_or_else(|| too_large(mapped));
    }
    if version > MOST {
        return Err(too_large(mapped));
    }
    page.take(version).map_err(|before| {
        Failure::Invalid(format!(
            "version {version} of {} is not above {before}, which was given out before",
            mapped.name()
        ))
    })
}

fn too_large(mapped: &Mapped) -> Failure {
    let name = mapped.name();
    Failure::Invalid(format!(
        "versions of {name} end with {MOST}: streams compare no larger ones"
    ))
}

/// Publishes a version at once: this number, or the next one for 0. Not before what a
/// stream is still to write, which would then take it back.
pub fn publish(engine: &Engine, mapped: &Mapped, version: u64) -> Result<u64, Failure> {
    let page = page(engine, mapped, None)?;
    let taken = take(mapped, &page, version)?;
    let number = taken.number;
    let before = page.announce(By::Host, number);
    if let Some(queued) = page.to_come() {
        page.take_back(By::Host, number, before);
        page.give_back(taken);
        return Err(Failure::Invalid(format!(
            "version {queued} of {} was queued on a stream and has not come: wait for it, or publish on a stream behind it",
            mapped.name()
        )));
    }
    page.set_newest(number);
    Ok(number)
}

/// Publishes a version behind the work of a stream. Not in a capture: each replay would
/// write the one number of now, below what others have published by then.
pub fn publish_on(
    engine: &Engine,
    mapped: &Mapped,
    version: u64,
    stream: Stream,
) -> Result<u64, Failure> {
    let page = page(engine, mapped, None)?;
    let at = page.for_streams(engine, mapped.spot.context)?;
    let write = engine.calls.write_value;
    let write = write.ok_or(Failure::Driver(Code::NOT_SUPPORTED, "cuStreamWriteValue64"))?;
    let captures = on(engine, mapped, stream, |s| engine.calls.captures(s));
    if captures.map_err(Failure::of("cuStreamIsCapturing"))? {
        return Err(Failure::Invalid(format!(
            "a version of {} in a capture is one number for all replays: publish behind the graph's launch",
            mapped.name()
        )));
    }
    let (taken, before) = loop {
        let taken = take(mapped, &page, version)?;
        let before = page.announce(By::Stream, taken.number);
        if !page.is_behind(taken.number) {
            break (taken, before);
        }
        // The host took a larger one meanwhile: the next is larger yet, and one that was
        // said is refused.
        page.take_back(By::Stream, taken.number, before);
    };
    let number = taken.number;
    // SAFETY: a word of page-locked memory.
    let written = on(engine, mapped, stream, |stream| unsafe {
        write(stream, at, number, 0).ok()
    });
    written.map_err(|code| {
        page.take_back(By::Stream, number, before);
        page.give_back(taken);
        Failure::of("cuStreamWriteValue64")(code)
    })?;
    Ok(number)
}

/// Lets the work of a stream that is queued from now on wait for a version.
pub fn wait_on(
    engine: &Engine,
    mapped: &Mapped,
    version: u64,
    stream: Stream,
) -> Result<(), Failure> {
    const AT_LEAST: u32 = 0;
    if version > MOST {
        return Err(too_large(mapped));
    }
    let page = page(engine, mapped, None)?;
    let at = page.for_streams(engine, mapped.spot.context)?;
    let wait = engine.calls.wait_value;
    let wait = wait.ok_or(Failure::Driver(Code::NOT_SUPPORTED, "cuStreamWaitValue64"))?;
    // SAFETY: a word of page-locked memory.
    let queued = on(engine, mapped, stream, |stream| unsafe {
        wait(stream, at, version, AT_LEAST).ok()
    });
    queued.map_err(Failure::of("cuStreamWaitValue64"))
}

/// A default stream is one of the memory's device: of the current context, or where that is
/// another device's, of the one in which programs work with the memory.
fn on<T>(
    engine: &Engine,
    mapped: &Mapped,
    stream: Stream,
    call: impl FnOnce(Stream) -> Result<T, Code>,
) -> Result<T, Code> {
    let is_of_current = match engine.current() {
        Ok((_, device)) => !stream.is_default() || device.ordinal == mapped.device,
        Err(_) => false,
    };
    let stream = if stream.0 == 0 {
        Stream::LEGACY
    } else {
        stream
    };
    if is_of_current {
        return call(stream);
    }
    let context = mapped.primary(engine).unwrap_or(mapped.spot.context);
    engine.calls.within(context, || call(stream))?
}

/// Waits on the host until a version or a later one is published; the newest.
/// `None` waits for ever, unless the name is deleted.
pub fn wait(
    engine: &Engine,
    mapped: &Mapped,
    version: u64,
    longest: Option<Duration>,
) -> Result<u64, Failure> {
    let mut waiting = Waiting::begin();
    let page = page(engine, mapped, longest)?;
    let mut doubt = DOUBT;
    let mut pause = Duration::from_micros(5);
    let mut sure = None;
    loop {
        let newest = page.newest();
        if newest >= version {
            return Ok(newest);
        }
        let waited = waiting.lasted();
        if longest.is_some_and(|longest| waited >= longest) {
            return Err(Failure::Timeout(format!(
                "version {version} of {} did not come in {} us; the newest is {newest}",
                mapped.name(),
                waited.as_micros()
            )));
        }
        if waited < BUSY {
            std::hint::spin_loop();
            waiting.passed(SPIN);
            continue;
        }
        let epoch = keeper::epoch();
        let left = longest.map_or(QUESTION, |longest| longest - waited);
        if waited > doubt && sure != epoch {
            match is_there(engine, mapped, left.min(QUESTION))? {
                true => sure = epoch,
                false => doubt = waiting.lasted() + AGAIN,
            }
            continue;
        }
        waiting.pause(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Is the name still this memory? False where no keeper says so in time, which is no
/// reason to end a wait.
fn is_there(engine: &Engine, mapped: &Mapped, patience: Duration) -> Result<bool, Failure> {
    let name = mapped.name().clone();
    let Some(answer) = keeper::request_within(engine, Request::Show { name }, patience) else {
        return Ok(false);
    };
    let gone = match answer {
        Ok((Reply::Entries { entries, .. }, _)) => entries
            .first()
            .is_none_or(|entry| entry.generation != mapped.entry.generation),
        Err(share::Error::Refused(protocol::Code::NotFound, _)) => true,
        _ => false,
    };
    if gone {
        let deleted = format!(
            "{} was deleted while a version was waited for",
            mapped.name()
        );
        return Err(Failure::Refused(protocol::Code::NotFound, deleted));
    }
    Ok(true)
}
