use super::*;
use crate::random::Random;

/// Lends without a stream, to the front 0.
fn lend(slabs: &mut Slabs, bytes: u64, streams: &Streams) -> Option<Address> {
    slabs.lend(bytes, None, 0, TRIES, streams)
}

#[test]
fn bins_are_monotonous_and_in_range() {
    let bins: Vec<_> = (1..=CELLS as u16).map(bin_of).collect();
    assert!(bins.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!((bins[0], bins[CELLS - 1]), (1, 80));
}

#[test]
fn blocks_lie_512_bytes_apart_and_an_empty_slab_goes_back_whole() {
    let (streams, mut slabs) = (Streams::default(), Slabs::default());
    slabs.add(SLAB, 3, Use::DONE);
    let at = |slabs: &mut Slabs| lend(slabs, 1, &streams).unwrap();
    let (a, b) = (at(&mut slabs), at(&mut slabs));
    assert_eq!(b - a, GRANULE);
    assert_eq!(slabs.find(a + 5), Some((a, 0)));
    slabs.set_home(b, 7);
    assert_eq!(slabs.find(b), Some((b, 7)));
    assert_eq!(
        slabs.free(a + 5, Use::DONE, &streams),
        Err(NotOurs::Interior)
    );
    slabs.free(a, Use::DONE, &streams).unwrap();
    assert_eq!(slabs.free(a, Use::DONE, &streams), Err(NotOurs::Unknown));
    assert!(slabs.take_empty(0, 9, &streams).is_empty());
    slabs.free(b, Use::DONE, &streams).unwrap();
    assert_eq!(slabs.take_empty(0, 9, &streams), [(SLAB, Use::DONE)]);
    assert!(lend(&mut slabs, 1, &streams).is_none());
}

#[test]
fn random_use_keeps_blocks_apart_and_loses_nothing() {
    let (streams, mut slabs) = (Streams::default(), Slabs::default());
    let mut live: Vec<(Address, u64)> = Vec::new();
    let (mut random, mut bases) = (Random::new(12345), 1);
    for _ in 0..20_000 {
        let seed = random.next();
        if seed >> 40 & 1 == 0 && !live.is_empty() {
            let (at, _) = live.swap_remove((seed >> 41) as usize % live.len());
            slabs.free(at, Use::DONE, &streams).unwrap();
            continue;
        }
        let bytes = 1 + (seed >> 33) % SMALL_MAX;
        let at = loop {
            match lend(&mut slabs, bytes, &streams) {
                Some(at) => break at,
                None => {
                    slabs.add(bases * SLAB, 0, Use::DONE);
                    bases += 1;
                }
            }
        };
        let end = at + granted(bytes);
        assert!(live.iter().all(|&(a, b)| end <= a || at >= a + granted(b)));
        live.push((at, bytes));
    }
    for (at, _) in live.drain(..) {
        slabs.free(at, Use::DONE, &streams).unwrap();
    }
    let slabs_left = slabs.take_empty(0, usize::MAX, &streams).len();
    assert_eq!(slabs_left as u64, bases - 1);
}

/// However many there are: those that cannot go yet are not looked at by every free.
#[test]
fn a_look_at_empty_slabs_is_short_and_goes_on_where_the_last_one_ended() {
    let (streams, mut slabs) = (Streams::default(), Slabs::default());
    for number in 1..=10 {
        slabs.add(number * SLAB, 0, Use::DONE);
    }
    let kept = lend(&mut slabs, 1, &streams).unwrap() / SLAB;
    let mut taken = Vec::new();
    for most in [4, 4, 1] {
        let some = slabs.take_empty(0, 4, &streams);
        assert_eq!(some.len(), most);
        taken.extend(some.iter().map(|(at, _)| at / SLAB));
    }
    taken.sort_unstable();
    assert!(taken.into_iter().eq((1..=10).filter(|&it| it != kept)));
}
