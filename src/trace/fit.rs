//! Would a job fit? Plays its trace under limits, the pool's own decisions over a
//! model of the driver, and finds the least with which every request is served.
//! An estimate: threads may meet in another order, and what an allocator of the
//! program's own would give up on its last rung is not known.

use super::Reader;
use super::replay::{Failure, Outcome, Profile, replay};
use crate::driver::Code;
use crate::error::Result;
use crate::pool::Settings;
use crate::units::HANDLE;

/// Part of a limit to which it is found.
const PART: u64 = 400;
/// More memory than any device has.
const UNLIMITED: u64 = 1 << 50;

/// How a trace is played.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// How the program's requests reach the pool.
    pub profile: Profile,
    /// Bytes of a handle, where that is fixed.
    pub chunk: Option<u64>,
    /// Most bytes that each device's pool may hold.
    pub limit: Option<u64>,
}

/// Plays a trace; `None` where a request was refused for lack of memory.
pub fn play<'a>(
    open: impl Fn() -> Result<Reader<'a>>,
    setting: Setting,
) -> std::result::Result<Option<Outcome>, Failure> {
    let settings = || Settings {
        chunk: setting.chunk,
        limit: setting.limit,
        ..Settings::default()
    };
    match replay(open()?, setting.profile, UNLIMITED, settings) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(Failure::Refused(_, Code::OUT_OF_MEMORY)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The least limit of each device under which every request is served, in bytes, to about a
/// 400th. Known is that the first of `between` is too little, and the second is not.
pub fn least<'a>(
    open: impl Fn() -> Result<Reader<'a>>,
    setting: Setting,
    between: (u64, u64),
) -> std::result::Result<u64, Failure> {
    let up = |bytes: u64| bytes.next_multiple_of(HANDLE);
    // What is far too little is refused early, so it costs little to ask.
    let (mut under, mut enough) = (between.0, up(between.1));
    while enough.saturating_sub(under) > HANDLE.max(up(enough / PART)) {
        let middle = up(under + (enough - under) / 2).min(enough - HANDLE);
        let limit = Some(middle);
        match play(&open, Setting { limit, ..setting })? {
            Some(_) => enough = middle,
            None => under = middle,
        }
    }
    Ok(enough)
}
