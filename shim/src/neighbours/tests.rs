//! Doors, and who comes to them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::asking::connect;
use super::*;

const UUID: [u8; 16] = *b"a device of none";

/// The tests run side by side: each has a device of its own.
pub(super) fn door(number: u8) -> Door {
    let mut uuid = UUID;
    uuid[0] = number;
    uuid[1..5].copy_from_slice(&std::process::id().to_ne_bytes());
    let door = Door::new(uuid);
    door.open().unwrap();
    door
}

/// Asks until there is an answer: a round of others that have no processor ends without.
pub(super) fn heard_by(door: &Door) -> Answer {
    let mut heard = (0..5).map(|_| door.ask(7));
    heard
        .find(|heard| *heard != Answer::default())
        .unwrap_or_default()
}

fn serve(door: &Door, until: impl Fn() -> bool, answer: Answer) {
    while !until() {
        door.answer(|_| answer, || 9, || unreachable!("nobody asks"))
            .unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn those_on_one_device_find_and_answer_each_other() {
    let (one, two, elsewhere) = (door(1), door(1), door(2));
    assert_eq!(one.others().as_slice(), std::slice::from_ref(&two.name));
    assert!(elsewhere.others().is_empty());
    // The kernel lists a door once more for who is in it.
    let entered = connect(&two.name).unwrap();
    let inside = two.listener().unwrap().ours().unwrap().accept().unwrap();
    assert_eq!(one.others().as_slice(), std::slice::from_ref(&two.name));
    drop((entered, inside));
    let said = Answer {
        given: 5,
        soon: 1 << 40,
    };
    let heard = std::thread::scope(|scope| {
        let asking = scope.spawn(|| heard_by(&one));
        serve(&two, || asking.is_finished(), said);
        asking.join().unwrap()
    });
    assert_eq!(heard, said);
}

#[test]
fn who_asks_what_is_offered_is_told_and_waits_a_moment_only() {
    let (one, two) = (door(14), door(14));
    let began = Instant::now();
    assert_eq!(one.offered(Duration::from_millis(10)), 0, "nobody answers");
    assert!(began.elapsed() < ROUND, "{:?}", began.elapsed());
    let offered = std::thread::scope(|scope| {
        let asking = scope.spawn(|| one.offered(Duration::from_secs(10)));
        while !asking.is_finished() {
            let answer = two.answer(|bytes| unreachable!("{bytes}"), || 9, || unreachable!());
            answer.unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        asking.join().unwrap()
    });
    assert_eq!(offered, 9);
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
                door.answer(answer, || unreachable!(), show).unwrap();
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
        let (mut asker, _) = one
            .listener()
            .unwrap()
            .ours()
            .unwrap()
            .accept()
            .or_else(|_| {
                std::thread::sleep(Duration::from_millis(200));
                one.listener().unwrap().ours().unwrap().accept()
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
fn who_asks_for_nothing_keeps_others_waiting_for_a_moment_only() {
    let (one, two) = (door(8), door(8));
    let said = Answer { given: 1, soon: 2 };
    let entered = connect(&two.name).unwrap();
    let done = &AtomicBool::new(false);
    let heard = std::thread::scope(|scope| {
        scope.spawn(move || serve(&two, || done.load(Ordering::Relaxed), said));
        let heard = heard_by(&one);
        done.store(true, Ordering::Relaxed);
        drop(entered);
        heard
    });
    assert_eq!(heard, said);
}

/// Comes to a door and asks.
fn asks(door: &Door, question: &[u8]) -> UnixStream {
    let mut asker = connect(&door.name).unwrap();
    asker.write_all(question).unwrap();
    asker
}

/// Of memory and of a picture.
const QUESTIONS: [&[u8]; 2] = [b"1234567\0", b"\0\0\0\0\0\0\0\0memcshow"];

/// Nobody who comes to this door now is answered.
fn answers_nobody(door: &Door) {
    let give = |bytes| unreachable!("{bytes} bytes");
    door.answer(
        give,
        || unreachable!("an offer"),
        || unreachable!("a picture"),
    )
    .unwrap();
}

#[test]
fn who_has_left_is_not_answered() {
    let one = door(9);
    for question in QUESTIONS {
        drop(asks(&one, question));
        answers_nobody(&one);
    }
}

#[test]
fn another_users_process_is_neither_asked_nor_answered() {
    // SAFETY: has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        let left_out = std::env::var_os("MEMCUDA_TESTS_AS_ONE_USER").is_some();
        assert!(
            left_out,
            "to be two users is root's to do; MEMCUDA_TESTS_AS_ONE_USER=1 leaves it out"
        );
        return;
    }
    let (one, two) = (door(10), door(10));
    let _root = asks(&two, QUESTIONS[0]);
    let other = || {
        const NOBODY: libc::c_long = 65534;
        // SAFETY: changes the user of this thread alone, which ends soon.
        let code = unsafe { libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) };
        assert_eq!(code, 0);
        // Not root's business either.
        answers_nobody(&two);
        assert_eq!(one.ask(7), Answer::default());
        let (mut came, _) = two.listener().unwrap().ours().unwrap().accept().unwrap();
        assert_eq!(came.read(&mut [0; 8]).unwrap(), 0, "it was asked");
        QUESTIONS.map(|question| asks(&two, question))
    };
    let _askers = std::thread::scope(|scope| scope.spawn(other).join().unwrap());
    answers_nobody(&two);
}

#[test]
fn while_memory_will_be_idle_soon_others_are_asked_now_and_then_and_not_for_ever() {
    let (one, two) = (door(11), door(11));
    let (asked, done) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let soon = |_| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Answer { given: 0, soon: 1 }
                };
                two.answer(soon, || 0, || unreachable!()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let most = PATIENCE.div_duration_f32(PAUSE) as u32 + 1;
        let mut tries = Vec::new();
        // One who has no processor for a round does not say that there will be any.
        let is_good = (0..5).any(|_| {
            let (began, before) = (Instant::now(), asked.load(Ordering::Relaxed));
            one.in_vain.came();
            assert_eq!(one.make_room(7, &|| 1, began), 0);
            let waited = began.elapsed();
            let times = asked.load(Ordering::Relaxed) - before;
            tries.push((waited, times));
            (PATIENCE..2 * PATIENCE).contains(&waited) && (2..=most).contains(&times)
        });
        done.store(true, Ordering::Relaxed);
        assert!(is_good, "{tries:?}");
    });
}

#[test]
fn a_door_before_which_many_stand_keeps_nobody() {
    let (one, two) = (door(12), door(12));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Who has left stands there still.
        while connect(&two.name).is_some() {}
        tell.send(one.ask(7)).unwrap();
    });
    let heard = told.recv_timeout(Duration::from_secs(20));
    assert_eq!(heard, Ok(Answer::default()), "it waited");
}

/// Answers at a door until this is over, and counts.
fn answering<T>(door: &Door, answer: Answer, meanwhile: impl FnOnce(&AtomicU32) -> T) -> T {
    let (asked, done) = (&AtomicU32::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let answer = |_| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    answer
                };
                door.answer(answer, || 0, || unreachable!()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let meanwhile = meanwhile(asked);
        done.store(true, Ordering::Relaxed);
        meanwhile
    })
}

#[test]
fn nobody_waits_for_less_than_lacks_nor_again_for_what_did_not_come() {
    let (one, two) = (door(15), door(15));
    let ask = |lack| one.make_room(7, &|| lack, Instant::now());
    answering(&two, Answer { given: 0, soon: 5 }, |asked| {
        assert_eq!(ask(6), 0);
        assert!(asked.swap(0, Ordering::Relaxed) <= 1);
        // Who has no processor for a round is not waited for.
        while one.in_vain.is_patient() {
            assert_eq!(ask(5), 0);
        }
        one.in_vain.came();
        one.in_vain.waited(8 * PATIENCE);
        asked.store(0, Ordering::Relaxed);
        assert_eq!(ask(5), 0);
        assert!(asked.load(Ordering::Relaxed) <= 1);
    });
    answering(&two, Answer { given: 1, soon: 0 }, |_| while ask(5) == 0 {});
    assert!(one.in_vain.is_patient());
}

/// As under libfaketime: of that request no time passes.
#[test]
fn a_clock_that_stands_still_makes_no_wait_longer() {
    let (one, two) = (door(16), door(16));
    let (began, hour) = (Instant::now(), Duration::from_secs(3600));
    answering(&two, Answer { given: 0, soon: 5 }, |_| {
        assert_eq!(one.make_room(7, &|| 0, began + hour), 0);
    });
    assert!(began.elapsed() < hour);
}

#[test]
fn no_child_has_the_question() {
    let many = [door(13), door(13)];
    let entered = connect(&many[1].name).unwrap();
    // SAFETY: asks for flags of a descriptor that is open.
    let flags = unsafe { libc::fcntl(entered.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags, libc::FD_CLOEXEC);
}

#[test]
fn who_is_gone_or_silent_costs_a_bounded_time() {
    let (one, gone) = (door(3), door(3));
    drop(gone);
    assert_eq!(one.ask(7), Answer::default());
    let _silent = door(3);
    let began = Instant::now();
    assert_eq!(one.ask(7), Answer::default());
    assert!(began.elapsed() < 20 * ROUND);
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
            while !asked.load(Ordering::Relaxed) && began.elapsed() < 40 * ROUND {
                // SAFETY: see above.
                unsafe { libc::pthread_kill(us, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let began = Instant::now();
        assert_eq!(one.ask(7), Answer::default());
        // Who begins again after each of them waits for as long as they come.
        assert!(began.elapsed() < 20 * ROUND, "{:?}", began.elapsed());
        // Somebody answers after a while.
        let said = Answer { given: 3, soon: 0 };
        scope.spawn(move || {
            std::thread::sleep(ROUND / 4);
            serve(&silent, || asked.load(Ordering::Relaxed), said);
        });
        let heard = heard_by(&one);
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
        one.answer(
            |_| unreachable!("not a door"),
            || unreachable!(),
            || unreachable!()
        )
        .is_ok()
    );
}
