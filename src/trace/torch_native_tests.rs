//! Torch's allocator over a runtime that writes down what it is asked.

use super::*;
use crate::driver::Code;
use crate::random::Random;

/// Never the same address twice; refuses as many calls as it is told.
#[derive(Default)]
struct Log {
    mallocs: Vec<u64>,
    frees: Vec<(Address, u64)>,
    refuse: u32,
    refused: u32,
    held: u64,
}

impl Runtime for Log {
    fn malloc(&mut self, bytes: u64, _stream: u64) -> Result<Address, Refusal> {
        if self.refuse > 0 {
            self.refuse -= 1;
            self.refused += 1;
            return Err(Refusal::Driver(Code::OUT_OF_MEMORY));
        }
        self.mallocs.push(bytes);
        self.held += bytes;
        Ok((self.mallocs.len() as u64) << 40)
    }

    fn free(&mut self, at: Address, bytes: u64, _stream: u64) {
        self.frees.push((at, bytes));
        self.held -= bytes;
    }
}

/// Allocates these sizes in turn on the default stream.
fn malloc(torch: &mut Allocator, log: &mut Log, sizes: &[u64]) -> Vec<Address> {
    let one = |bytes: &u64| torch.malloc(log, *bytes, 0).unwrap();
    sizes.iter().map(one).collect()
}

#[test]
fn segments_have_torchs_sizes() {
    for (asked, segment) in [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (50 * MIB + 1, 52 * MIB),
    ] {
        let (mut torch, mut log) = Default::default();
        malloc(&mut torch, &mut log, &[asked]);
        assert_eq!(log.mallocs, [segment], "{asked} bytes");
    }
}

#[test]
fn tensors_share_a_segment_and_what_is_freed_is_joined() {
    let (mut torch, mut log) = Default::default();
    let at = malloc(&mut torch, &mut log, &[4 * MIB, 4 * MIB, 4 * MIB, 8 * MIB]);
    assert_eq!(log.mallocs, [20 * MIB]);
    assert_eq!(at[3] - at[0], 12 * MIB);
    // Its neighbours in every order.
    for i in [0, 2, 1, 3] {
        torch.free(at[i]);
    }
    assert_eq!(malloc(&mut torch, &mut log, &[20 * MIB]), [at[0]]);
    assert_eq!(log.mallocs.len(), 1);
    // 19.5 MiB would leave less than 1 MiB: it gets all of it.
    torch.free(at[0]);
    malloc(&mut torch, &mut log, &[19 * MIB + MIB / 2, 2 * MIB]);
    assert_eq!(log.mallocs.len(), 2);
}

#[test]
fn the_best_fit_of_the_same_stream_is_taken() {
    let (mut torch, mut log) = Default::default();
    let at = malloc(&mut torch, &mut log, &[12 * MIB, 14 * MIB]);
    torch.free(at[1]);
    torch.free(at[0]);
    let elsewhere = torch.malloc(&mut log, 11 * MIB, 7).unwrap();
    assert!(!at.contains(&elsewhere) && log.mallocs.len() == 3);
    assert_eq!(malloc(&mut torch, &mut log, &[12 * MIB - 100]), [at[0]]);
    assert_eq!(malloc(&mut torch, &mut log, &[12 * MIB]), [at[1]]);
}

#[test]
fn blocks_of_the_split_size_are_for_tensors_of_about_their_size() {
    let (mut torch, mut log) = Default::default();
    let at = malloc(&mut torch, &mut log, &[54 * MIB]);
    torch.free(at[0]);
    malloc(&mut torch, &mut log, &[30 * MIB]);
    assert_eq!(log.mallocs, [54 * MIB, 30 * MIB], "not for smaller ones");
    malloc(&mut torch, &mut log, &[34 * MIB]);
    assert_eq!(log.mallocs.len(), 3, "20 MiB too large");
    assert_eq!(malloc(&mut torch, &mut log, &[36 * MIB]), [at[0]]);
    malloc(&mut torch, &mut log, &[36 * MIB]);
    assert_eq!(log.mallocs.len(), 4, "it was not split");
}

#[test]
fn the_first_rung_releases_what_is_enough() {
    let (mut torch, mut log) = Default::default();
    let at = malloc(
        &mut torch,
        &mut log,
        &[36 * MIB, 40 * MIB, 50 * MIB, 12 * MIB],
    );
    for at in &at {
        torch.free(*at);
    }
    // The least one that is large enough.
    log.refuse = 1;
    malloc(&mut torch, &mut log, &[15 * MIB]);
    assert_eq!(log.frees, [(at[0], 36 * MIB)]);
    // None is: the largest first, none below the split size.
    log.refuse = 1;
    malloc(&mut torch, &mut log, &[80 * MIB]);
    assert_eq!(log.frees[1..], [(at[2], 50 * MIB), (at[1], 40 * MIB)]);
    assert_eq!(log.refused, 2);
}

#[test]
fn the_last_rung_releases_all_that_is_whole() {
    let (mut torch, mut log) = Default::default();
    let sizes = [30 * MIB, 12 * MIB, 4 * MIB, 4 * MIB, 512];
    let at = malloc(&mut torch, &mut log, &sizes);
    let side = torch.malloc(&mut log, 16 * MIB, 9).unwrap();
    for at in [at[0], at[1], at[2], at[4], side] {
        torch.free(at);
    }
    // 30 MiB are not enough for 100: torch does not ask again before the last
    // rung, which leaves the segment that a tensor is in.
    log.refuse = 1;
    malloc(&mut torch, &mut log, &[100 * MIB]);
    assert_eq!(log.refused, 1);
    assert_eq!((log.frees.len(), log.held), (4, 120 * MIB));
    log.refuse = 2;
    let refused = torch.malloc(&mut log, 200 * MIB, 0);
    assert_eq!(refused, Err(Refusal::Driver(Code::OUT_OF_MEMORY)));
}

#[test]
fn nothing_is_lost_in_a_long_random_program() {
    let (mut torch, mut log) = <(Allocator, Log)>::default();
    let mut random = Random::new(1);
    let mut live: Vec<(Address, u64)> = Vec::new();
    for step in 0..20_000u32 {
        let number = random.next() >> 33;
        if live.len() > 60 || (!live.is_empty() && number.is_multiple_of(2)) {
            let (at, _) = live.swap_remove(number as usize % live.len());
            torch.free(at);
            continue;
        }
        if step.is_multiple_of(7) {
            log.refuse = 1;
        }
        let bytes = 1 + (number >> 3) % (1 << (10 + number % 17));
        let at = torch.malloc(&mut log, bytes, number >> 1 & 1).unwrap();
        for (other, size) in &live {
            assert!(at + bytes <= *other || other + size <= at, "overlap");
        }
        live.push((at, bytes));
    }
    let blocks = torch.blocks.values();
    assert_eq!(blocks.map(|block| block.bytes).sum::<u64>(), log.held);
    for (at, _) in live {
        torch.free(at);
    }
    torch.release_cached(&mut log);
    assert_eq!(
        (log.held, torch.blocks.len()),
        (0, 0),
        "all was joined again"
    );
    assert!(log.refused > 100);
}
