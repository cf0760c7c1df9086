//! Waits for a stream. All are the driver's but one: what torch waits for before it
//! unmaps pages that it was asked for stays mapped, so the next user comes after it
//! instead (`pages`).

use memcuda_core::driver::{Code, Stream};

use super::asynchronous::legacy;
use crate::{pages, tags, torch};

crate::hooks! {
    /// `cuStreamSynchronize`.
    cuStreamSynchronize ["cuStreamSynchronize" since 2000] (stream: Stream) |real, engine| {
        let tag = tags::take();
        if torch::waits_for_pages(&tag, stream) && pages::put_off(engine, legacy(stream)) {
            return Code::SUCCESS;
        }
        // SAFETY: the program's own call, passed on.
        unsafe { real(stream) }
    }
}
