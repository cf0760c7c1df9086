//! Doors, and who comes to them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const UUID: [u8; 16] = *b"a device of none";

/// The tests run side by side: each has a device of its own.
fn door(number: u8) -> Door {
    let mut uuid = UUID;
    uuid[0] = number;
    uuid[1..5].copy_from_slice(&std::process::id().to_ne_bytes());
    Door::open(uuid).unwrap()
}

fn serve(door: &Door, until: impl Fn() -> bool, answer: Answer) {
    while !until() {
        door.answer(|_| answer, || unreachable!("nobody asks"))
            .unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn those_on_one_device_find_and_answer_each_other() {
    let (one, two, elsewhere) = (door(1), door(1), door(2));
    assert_eq!(one.others().as_slice(), std::slice::from_ref(&two.name));
    assert!(elsewhere.others().is_empty());
    let said = Answer {
        given: 5,
        soon: 1 << 40,
    };
    let heard = std::thread::scope(|scope| {
        let asking = scope.spawn(|| one.ask(7));
        serve(&two, || asking.is_finished(), said);
        asking.join().unwrap()
    });
    assert_eq!(heard, said);
}

#[test]
fn who_asks_for_a_picture_gets_it_or_why_not() {
    use memcuda_core::picture::Picture;
    let asked = |door: &Door, show: &dyn Fn() -> std::io::Result<OwnedFd>| {
        let enter = || {
            let stream = connect(&door.name).unwrap();
            stream.set_nonblocking(false)?;
            Ok(stream)
        };
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask::ask(enter));
            while !asking.is_finished() {
                let answer = |bytes| unreachable!("{bytes} bytes");
                door.answer(answer, show).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            asking.join().unwrap()
        })
    };
    let (one, picture) = (door(6), Picture::default());
    assert_eq!(asked(&one, &|| ask::seal(&picture)), Ok(picture.clone()));
    let full = || Err(std::io::Error::from_raw_os_error(libc::EMFILE));
    let failed = ask::Unanswered::Failed(libc::EMFILE);
    assert_eq!(asked(&one, &full), Err(failed));
    // What is not sealed could be changed, or waited for.
    let open = || Ok(std::fs::File::open("/dev/zero")?.into());
    let damaged = asked(&one, &open).unwrap_err().to_string();
    assert_eq!(damaged, "a picture that is not sealed");
}

#[test]
fn a_library_that_knows_no_pictures_is_told_by_its_answer() {
    let one = door(7);
    let stream = connect(&one.name).unwrap();
    stream.set_nonblocking(false).unwrap();
    let older = std::thread::spawn(move || {
        let (mut asker, _) = one.listener.accept().or_else(|_| {
            std::thread::sleep(Duration::from_millis(200));
            one.listener.accept()
        })?;
        asker.set_nonblocking(false)?;
        let mut bytes = [0; 8];
        asker.read_exact(&mut bytes)?;
        assert_eq!(u64::from_ne_bytes(bytes), 0, "it would give bytes");
        asker.write_all(&[0_u64.to_ne_bytes(), 7_u64.to_ne_bytes()].concat())
    });
    let asked = ask::ask(|| stream.try_clone());
    assert_eq!(asked, Err(ask::Unanswered::Old));
    older.join().unwrap().unwrap();
}

#[test]
fn who_is_gone_or_silent_costs_a_bounded_time() {
    let (one, gone) = (door(3), door(3));
    drop(gone);
    assert_eq!(one.ask(7), Answer::default());
    let _silent = door(3);
    let began = Instant::now();
    assert_eq!(one.ask(7), Answer::default());
    assert!(began.elapsed() < 4 * ROUND);
}

#[test]
fn signals_make_a_wait_neither_longer_nor_shorter() {
    extern "C" fn nothing(_: libc::c_int) {}
    let (one, silent) = (door(4), door(4));
    // SAFETY: a handler that does nothing, for a signal that nobody else
    // here uses; the thread that gets it lives.
    let us = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        libc::pthread_self()
    };
    let asked = AtomicBool::new(false);
    let asked = &asked;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            while !asked.load(Ordering::Relaxed) && began.elapsed() < 8 * ROUND {
                // SAFETY: see above.
                unsafe { libc::pthread_kill(us, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let began = Instant::now();
        assert_eq!(one.ask(7), Answer::default());
        assert!(began.elapsed() < 4 * ROUND, "{:?}", began.elapsed());
        // Somebody answers after a while.
        let said = Answer { given: 3, soon: 0 };
        scope.spawn(move || {
            std::thread::sleep(ROUND / 4);
            serve(&silent, || asked.load(Ordering::Relaxed), said);
        });
        let heard = one.ask(7);
        asked.store(true, Ordering::Relaxed);
        assert_eq!(heard, said);
    });
}

#[test]
fn a_descriptor_that_the_program_closed_is_left_alone() {
    let one = door(5);
    let descriptor = one.descriptor().unwrap();
    // SAFETY: the descriptor is the door's, which only looks at it from now
    // on; both ends of the pair are owned here.
    unsafe {
        let mut pair = [0; 2];
        let kind = libc::SOCK_STREAM;
        assert_eq!(
            libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()),
            0
        );
        assert_eq!(libc::dup2(pair[0], descriptor), descriptor);
        libc::close(pair[0]);
        libc::close(pair[1]);
    }
    assert_eq!(one.descriptor(), None);
    assert!(
        one.answer(|_| unreachable!("not a door"), || unreachable!())
            .is_ok()
    );
}
