//! Many doors, and who asks at them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::super::tests::{door, heard_by};
use super::super::{Door, has_left};
use super::*;

/// So many others on a device, in the order in which they are listed.
fn crowd(device: u8, count: usize) -> (Door, Vec<Door>) {
    let one = door(device);
    let mut others: Vec<Door> = (0..count).map(|_| door(device)).collect();
    others.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(one.others().len(), count);
    (one, others)
}

/// What is heard where each of the others answers by its place; and how many were asked.
fn heard(one: &Door, others: &[Door], answer: impl Fn(usize) -> Answer + Sync) -> (Answer, usize) {
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (place, other) in others.iter().enumerate() {
                    let answer = |_| {
                        asked.fetch_add(1, Ordering::Relaxed);
                        answer(place)
                    };
                    other.answer(answer, || 0, || unreachable!()).unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let heard = heard_by(one);
        done.store(true, Ordering::Relaxed);
        (heard, asked.load(Ordering::Relaxed))
    })
}

#[test]
fn the_last_one_of_many_is_asked_too_and_first_the_next_time() {
    let (one, others) = crowd(20, 2 * MOST + 1);
    let last = |place| Answer {
        given: 7 * u64::from(place == 2 * MOST),
        soon: 0,
    };
    assert_eq!(heard(&one, &others, last).0, last(2 * MOST));
    let mut names = one.others();
    one.known.sort(&mut names);
    assert_eq!(names[0], others[2 * MOST].name);
}

#[test]
fn where_enough_was_given_the_others_keep_theirs() {
    let (one, others) = crowd(21, 2 * MOST);
    let (heard, asked) = heard(&one, &others, |_| Answer { given: 7, soon: 0 });
    assert!((1..=MOST).contains(&asked), "{asked}");
    assert!(heard.given >= 7, "{heard:?}");
}

#[test]
fn no_more_than_some_are_asked_at_a_time() {
    let (one, others) = crowd(22, MOST + 3);
    let mut came = Vec::new();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| one.ask(7));
        let mut is_over = false;
        while !is_over {
            is_over = asking.is_finished();
            for other in &others {
                let listener = other.listener().unwrap().ours().unwrap();
                while let Ok((mut asker, _)) = listener.accept() {
                    asker.read_exact(&mut [0; 8]).unwrap();
                    came.push(asker);
                }
            }
            let there = came.iter().filter(|asker| !has_left(asker)).count();
            assert!(there <= MOST, "{there}");
        }
        assert_eq!(asking.join().unwrap(), Answer::default());
    });
    assert_eq!(came.len(), MOST + 3);
}

#[test]
fn those_that_had_something_come_first_and_the_silent_ones_last() {
    use Last::{Had, Nothing, Silent};
    let known = Known::default();
    let of = |(name, last): (&str, _)| (name.to_owned(), last);
    *lock(&known.0) = [("a", Silent), ("b", Nothing), ("d", Had)].map(of).into();
    let mut doors = ["a", "b", "c", "d"].map(str::to_owned);
    known.sort(&mut doors);
    assert_eq!(doors, ["d", "c", "b", "a"]);
}
