//! Streams that were destroyed, by their handles. Torch keeps memory of a stream beyond its end, and
//! waits for it before it unmaps pages, where it would give memory of cudaMalloc's up by a cudaFree;
//! what a driver makes of such a handle is an error, or worse. A handle that the driver gives out
//! again is forgotten, and so is the oldest of many. Waits for nothing, and asks no driver.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use memcuda_core::driver::{Context, Stream};
use memcuda_core::lock::lock;

/// More than a program has at once.
const MOST: usize = 1024;

/// A stream, and its context until that ended.
type Known = VecDeque<(Stream, Option<Context>)>;

static ENDED: Mutex<Known> = Mutex::new(Known::new());
/// Has there been any? Most processes have none, and take no lock.
static ANY: AtomicBool = AtomicBool::new(false);

fn all() -> Option<MutexGuard<'static, Known>> {
    let known = || lock(&ENDED);
    ANY.load(Ordering::Acquire).then(known)
}

/// A stream of a context, if that is not gone, is about to be destroyed: before its handle can
/// come back.
pub fn ends(stream: Stream, context: Option<Context>) {
    ANY.store(true, Ordering::Release);
    if let Some(mut known) = all() {
        add(&mut known, (stream, context));
    }
}

/// There is a stream of this handle: the driver made it, or did not destroy it.
pub fn is_there(stream: Stream) {
    if let Some(mut known) = all() {
        known.retain(|(ended, _)| *ended != stream);
    }
}

/// A context has ended, and what ran in it, or was waited for before.
pub fn context_ended(context: Context) {
    if let Some(mut known) = all() {
        let its = known.iter_mut().filter(|(_, of)| *of == Some(context));
        its.for_each(|(_, of)| *of = None);
    }
}

/// The context in which a stream may still have work that was destroyed, if any; `None` where
/// there may be a stream of this handle.
pub fn context_of(stream: Stream) -> Option<Option<Context>> {
    let known = all()?;
    let found = known.iter().find(|(ended, _)| *ended == stream);
    found.map(|(_, context)| *context)
}

fn add(known: &mut Known, entry: (Stream, Option<Context>)) {
    known.retain(|(ended, _)| *ended != entry.0);
    if known.len() == MOST {
        known.pop_front();
    }
    known.push_back(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_of_an_ended_stream_until_it_comes_back_or_many_others_ended() {
        let [one, two] = [Stream(0x100), Stream(0x200)];
        let [first, second] = [1, 2].map(|number| Some(Context(number)));
        assert_eq!(context_of(one), None);
        ends(one, first);
        ends(two, second);
        context_ended(Context(1));
        assert_eq!(context_of(one), Some(None));
        assert_eq!(context_of(two), Some(second));
        is_there(two);
        assert_eq!(context_of(two), None);
        ends(one, second);
        assert_eq!(context_of(one), Some(second), "of the latest");

        let handles = (0..MOST as u64).map(|number| Stream(0x1000 + number));
        handles.clone().for_each(|stream| ends(stream, first));
        assert_eq!(context_of(one), None, "the oldest");
        assert!(handles.clone().all(|stream| context_of(stream).is_some()));
        assert_eq!(all().unwrap().len(), MOST);
        handles.for_each(is_there);
    }
}
