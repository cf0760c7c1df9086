//! Threads that ask beside one that waits for what is pending.

use crate::driver::Stream;
use crate::driver::model::Model;
use crate::pool::tests::{CONTEXT, key, on, request};
use crate::pool::{Order, Pool, Release, Request, Settings};
use crate::units::MIB;
use std::time::Duration;

/// What one thread waits for is not what others need.
#[test]
fn others_get_memory_while_a_thread_waits_for_what_is_pending() {
    let pool = Pool::new(Model::new(256 * MIB), 0, Settings::default()).unwrap();
    pool.driver().hold_truly();
    let at = pool.alloc(&on(10, 32 * MIB));
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(at.unwrap(), Release::Stream(key(10))).unwrap();
    let anywhere = request(32 * MIB, Order::Unknown);
    let all = Request {
        bytes: 256 * MIB,
        ..anywhere
    };
    let pool = &pool;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pool.alloc(&all));
        while !pool.lock().streams.health.is_awaited(CONTEXT) {
            std::thread::yield_now();
        }
        let (told, hears) = std::sync::mpsc::channel();
        let other = scope.spawn(move || {
            let at = pool.alloc(&anywhere).unwrap();
            pool.free(at, Release::Complete).unwrap();
            told.send(()).unwrap();
        });
        let served = hears.recv_timeout(Duration::from_secs(20));
        pool.driver().hold(CONTEXT, Stream(10), false);
        other.join().unwrap();
        waits.join().unwrap().unwrap();
        served.expect("it waited for what the other one needs");
    });
    assert_eq!(pool.physical(), 256 * MIB);
}
