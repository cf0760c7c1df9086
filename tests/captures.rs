//! What is waited for while something captures. Captures are those of the process, so
//! these are alone in their own.

use std::sync::Arc;

use memcuda::driver::model::Model;
use memcuda::driver::{Context, Driver, Stream};
use memcuda::pages::{Home, Kind, Pages};
use memcuda::pool::{CAPTURES, Effort, Order, Owner, Pool, Release, Request, Settings, StreamKey};
use memcuda::units::{GIB, MIB};

const CONTEXT: Context = Context(1);
const STREAM: Stream = Stream(0x100);

/// Whenever the capture began: before somebody asked, or after it.
#[test]
fn what_graphs_may_replay_on_is_unmapped_behind_them_though_something_captures() {
    let model = Model::new(GIB);
    let at = model.reserve(GIB).unwrap();
    let pages = Pages::new(model, 0, Arc::default(), None);
    let model = pages.driver();
    let kind = Kind {
        bytes: 2 * MIB,
        properties: 0,
    };
    let lease = pages.add(kind, || model.create(0, kind.bytes)).unwrap();
    let home = Home {
        reservation: at,
        context: CONTEXT,
    };
    pages.map(at, kind.bytes, lease, home).unwrap();
    pages.on_any_stream(at, CONTEXT);
    model.hold(CONTEXT, STREAM, true);

    CAPTURES
        .begin(&StreamKey::new(CONTEXT, STREAM, 0))
        .succeeded();
    assert_eq!(pages.unmap(at, kind.bytes, None), Some(Ok(())));
    let event = model.create_event(CONTEXT).unwrap();
    model.record(event, CONTEXT, STREAM).unwrap();
    assert_eq!(model.is_complete(event), Ok(true));
}

/// However long the capture lasts.
#[test]
fn what_is_freed_without_a_stream_is_lent_again_though_something_captures() {
    let limit = Some(64 * MIB);
    let settings = Settings {
        limit,
        ..Settings::default()
    };
    let pool = Pool::new(Model::new(GIB), 0, settings).unwrap();
    let request = Request {
        bytes: 64 * MIB,
        align: 512,
        order: Order::Unknown,
        context: CONTEXT,
        owner: Owner::Context,
        effort: Effort::Growth,
        graph: true,
    };
    CAPTURES
        .begin(&StreamKey::new(CONTEXT, STREAM, 0))
        .succeeded();
    let at = pool.alloc(&request).unwrap();
    pool.driver().hold(CONTEXT, STREAM, true);
    pool.free(at, Release::Unknown).unwrap();
    assert_eq!(pool.alloc(&request), Ok(at));
    assert_eq!(pool.synchronize_device(CONTEXT), Ok(true));
}
