//! Waits on the host for a stream or a context. All are the driver's but one: what torch waits
//! for before it unmaps pages that it was asked for stays mapped, so the next user comes after
//! it instead (`pages`). The pools are told of those that succeed.

use memcuda_core::driver::real::Real;
use memcuda_core::driver::{Code, Context, Stream};
use memcuda_core::pool::{Place, Pool};

use crate::device::Device;
use crate::engine::Engine;
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
        let code = told(of_stream(engine, stream.or_legacy()), || unsafe { real(stream) });
        tags::set(Tag {
            waited: site.filter(|_| code == Code::SUCCESS),
            ..Tag::NONE
        });
        code
    }

    /// `cuStreamSynchronize`, thread's own default stream.
    cuStreamSynchronize_ptsz ["cuStreamSynchronize" since 2000 per_thread] (stream: Stream) |real, engine| {
        // SAFETY: the program's own call, passed on.
        told(of_stream(engine, stream.or_per_thread()), || unsafe { real(stream) })
    }

    /// `cuCtxSynchronize`.
    cuCtxSynchronize ["cuCtxSynchronize" since 2000] () |real, engine| {
        let current = engine.calls.current().unwrap_or_default();
        // SAFETY: the program's own call, passed on.
        told(of_context(engine, current), || unsafe { real() })
    }

    /// `cuCtxSynchronize_v2`: any context.
    cuCtxSynchronize_v2 ["cuCtxSynchronize" since 13000] (context: Context) |real, engine| {
        // SAFETY: the program's own call, passed on.
        told(of_context(engine, context), || unsafe { real(context) })
    }
}

/// What a wait is for, pool by pool.
type Places<'a> = Vec<(&'a Pool<Real>, Place)>;

/// Of a stream: what was freed in its order, whichever device's it is.
fn of_stream(engine: &Engine, stream: Stream) -> Places<'_> {
    if stream == Stream::LEGACY || engine.pools().next().is_none() {
        return Vec::new();
    }
    // What is no stream the driver refuses to wait for.
    let Ok((context, _)) = engine.of_stream(stream) else {
        return Vec::new();
    };
    let key = engine.key(context, stream);
    let pools = engine.pools();
    pools
        .filter_map(|pool| Some((pool, pool.place_of(&key)?)))
        .collect()
}

/// Of a context. Where green contexts were, it is not known for which streams a wait is.
fn of_context(engine: &Engine, context: Context) -> Places<'_> {
    let plain = |device: &&Device| !device.views.were_there();
    let pools = engine.devices.iter().filter(plain).filter_map(Device::pool);
    pools
        .flat_map(|pool| {
            let places = pool.places_in(context).into_iter();
            places.map(move |place| (pool, place))
        })
        .collect()
}

/// Waits, and tells the pools where that succeeds.
fn told(places: Places, wait: impl FnOnce() -> Code) -> Code {
    let code = wait();
    if code == Code::SUCCESS {
        places
            .into_iter()
            .for_each(|(pool, place)| pool.has_waited(place));
    }
    code
}
