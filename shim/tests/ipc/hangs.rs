//! A keeper that hangs is waited for so long and no longer, whatever signals the program has;
//! and no thread ends in a wait for one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use memcuda_core::share::client::{Client, Error};

use crate::actor::Place;
use crate::fickle::listen;
use crate::keeper::signal;
use crate::support::{program, run, shim};
use crate::{PARKED, shared};

extern "C" fn nothing(_: libc::c_int) {}

/// As of a timer: every call that waits is broken off again and again.
#[test]
fn signals_make_nobody_wait_longer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent.sock");
    let _silent = listen(&path);
    let mut dialled = Client::dial(&path, std::process::id(), "test", &[]).unwrap();
    let patience = Duration::from_millis(300);
    dialled.be_patient(patience);
    // SAFETY: zeros are a value of it, and the handler does nothing.
    let this = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
        libc::pthread_self()
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                std::thread::sleep(Duration::from_millis(100));
                if over.load(Ordering::Relaxed) {
                    break;
                }
                // SAFETY: that thread waits for this one before it ends.
                unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
            }
        });
        let began = Instant::now();
        let answer = dialled.welcome();
        let waited = began.elapsed();
        over.store(true, Ordering::Relaxed);
        assert!(matches!(answer, Err(Error::Lost)));
        // Who begins again after each of them waits for as long as they come.
        let most = Duration::from_secs(10);
        assert!((patience..most).contains(&waited), "{waited:?}");
    });
}

/// A forced unwinding through this library would end the process.
#[test]
fn a_thread_that_is_cancelled_ends_in_no_request() {
    let place = Place::with_keeper();
    let program = program("cancelled.c", "cancelled");
    run(&mut place.command(&program, &[shim()]));
}

/// The keeper hears it later, and has lent what nobody has.
#[test]
fn what_was_asked_in_vain_is_held_by_nobody_once_the_keeper_goes_on() {
    let (place, [mut exporter, mut importer], [there, here, handle]) = shared(PARKED);
    importer.close(&here);
    let keeper = place.keeper.stop();
    assert_ne!(importer.code(&format!("open {handle}")), 0);
    signal(keeper, libc::SIGCONT);
    exporter.free(&there);
    exporter.gets_again(&there, PARKED);
}

/// Nor what came without the descriptors for which this process had no room.
#[test]
fn what_could_not_be_received_is_held_by_nobody() {
    let (_place, [mut exporter, mut importer], [there, here, handle]) = shared(PARKED);
    importer.close(&here);
    importer.must("more-files 0");
    assert_ne!(importer.code(&format!("open {handle}")), 0);
    importer.must("more-files 1");
    exporter.free(&there);
    exporter.gets_again(&there, PARKED);
}
