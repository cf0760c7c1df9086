//! What MPI's libraries remember of the memory of others: what they have opened, until the same
//! addresses come with another handle.

use crate::actor::{Actor, Place};
use crate::keeper::until;
use crate::{MIB, counters};

/// What an importer has open: where it is in the exporter, in bytes, and where here.
#[derive(Default)]
struct Cache(Vec<(u64, u64, String)>);

impl Cache {
    /// Opens what the exporter has there, once what was open of these addresses is closed.
    fn open(&mut self, [exporter, importer]: &mut [Actor; 2], there: &str, bytes: u64) -> String {
        let handle = exporter.handle(there);
        let from = u64::from_str_radix(there, 16).unwrap();
        let is_there =
            |(begin, end, _): &mut (u64, u64, String)| *begin < from + bytes && from < *end;
        for (.., here) in self.0.extract_if(.., is_there) {
            importer.close(&here);
        }
        let here = importer.open(&handle);
        self.0.push((from, from + bytes, here.clone()));
        here
    }

    /// An allocation with a pattern in it, opened.
    fn shared(&mut self, actors: &mut [Actor; 2], bytes: u64, number: u64) -> String {
        let there = actors[0].filled(bytes, number);
        let here = self.open(actors, &there, bytes);
        assert!(actors[1].has(&here, bytes, number));
        there
    }
}

fn begun() -> (Place, [Actor; 2], Cache) {
    let place = Place::with_keeper();
    let actors = [place.actor(), place.actor()];
    (place, actors, Cache::default())
}

#[test]
fn a_cache_of_what_is_open_holds_one_allocation() {
    let (_place, mut actors, mut cache) = begun();
    let mut held = Vec::new();
    for round in 0..5 {
        let there = cache.shared(&mut actors, 8 * MIB, round);
        assert_eq!(cache.0.len(), 1, "round {round}");
        actors[0].free(&there);
        held.push(actors[0].physical());
    }
    assert!(held.iter().all(|bytes| *bytes == held[0]), "{held:?}");
}

#[test]
fn a_cache_holds_two_that_are_both_freed_before_either_is_made_again() {
    let (_place, mut actors, mut cache) = begun();
    for round in 0..5 {
        let both = [4, 6].map(|mib| cache.shared(&mut actors, mib * MIB, round));
        both.iter().for_each(|there| actors[0].free(there));
        assert_eq!(cache.0.len(), 2, "round {round}");
    }
}

#[test]
fn a_cache_holds_one_beside_memory_that_is_nobody_elses() {
    for own in [8, 4] {
        let (_place, mut actors, mut cache) = begun();
        for round in 0..5 {
            let there = cache.shared(&mut actors, 8 * MIB, round);
            let beside = actors[0].must(&format!("alloc {}", own * MIB));
            [beside, there].iter().for_each(|at| actors[0].free(at));
            let longer = actors[0].must(&format!("alloc {}", (20 + round) * MIB));
            actors[0].free(&longer);
            assert!(cache.0.len() <= 2, "{own}: {:x?}", cache.0);
        }
    }
}

#[test]
fn what_work_runs_on_when_it_is_freed_is_left_once_that_is_over() {
    let (_place, mut actors, mut cache) = begun();
    for round in 0..5 {
        let there = cache.shared(&mut actors, 8 * MIB, round);
        actors[0].must(&format!("work {there} 4096 20000"));
        actors[0].must(&format!("free-async {there}"));
        actors[0].must("sync");
        assert!(cache.0.len() <= 2, "round {round}");
    }
    // Also where nothing is freed or exported any more.
    parked(&actors[0], 0);
}

#[test]
fn what_is_freed_while_another_thread_makes_stitches_is_left() {
    let (_place, mut actors, mut cache) = begun();
    let all = [0; 20].map(|_| cache.shared(&mut actors, 4 * MIB, 1));
    actors[0].must("stitches 1");
    all.iter().for_each(|there| actors[0].free(there));
    actors[0].must("stitches 0");
    parked(&actors[0], 0);
}

/// Waits until so many bytes are freed and neither lent nor left.
#[track_caller]
fn parked(actor: &Actor, bytes: u64) {
    until("freed memory is left", || {
        counters::of(actor.pid())[0].pool.parked_bytes == bytes
    });
}
