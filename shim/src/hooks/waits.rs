//! Waits for a stream. All are the driver's but one: what torch waits for before it
//! unmaps pages that it was asked for stays mapped, so the next user comes after it
//! instead (`pages`).

use memcuda_core::driver::{Code, Stream};

use crate::pages::put_off;
use crate::share::exports;
use crate::tags::{self, Tag};
use crate::torch;

crate::hooks! {
    /// `cuStreamSynchronize`.
    cuStreamSynchronize ["cuStreamSynchronize" since 2000] (stream: Stream) |real, engine| {
        put_off::note(engine, stream.or_legacy());
        let site = torch::waits_on_ladder(&tags::take(), stream);
        // Of what is exported none is kept: it would be waited for behind a lock.
        let unmaps = site.is_some_and(torch::unmaps_behind) && !exports::has_runs();
        if unmaps && put_off::begin(engine, stream.or_legacy()) {
            return Code::SUCCESS;
        }
        put_off::end();
        // SAFETY: the program's own call, passed on.
        let code = unsafe { real(stream) };
        tags::set(Tag {
            waited: site.filter(|_| code == Code::SUCCESS),
            ..Tag::NONE
        });
        code
    }
}
