//! For each kind of misuse that the simulation claims to catch, a planted one
//! that it catches, with what its line says.

mod support;

use std::os::unix::process::ExitStatusExt;

/// The case is ended by SIGABRT, with one line that says so.
fn is_caught(program: &str, case: &str, line: &str) {
    let output = support::run(program, "libcuda.so.1", &[case], &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert_eq!(
        status.signal(),
        Some(libc::SIGABRT),
        "{case}: {status}\n{said}"
    );
    let lines: Vec<&str> = said.lines().collect();
    let clear = lines.len() == 1 && lines[0].starts_with("memcuda-sim: MISUSE: ");
    assert!(
        clear && said.contains(line),
        "{case} should say {line:?}, said:\n{said}"
    );
}

macro_rules! caught {
    ($program:literal: $($case:ident => $line:literal;)*) => {
        $(#[test]
        fn $case() {
            is_caught($program, stringify!($case), $line);
        })*
    };
}

// Memory that may not be touched.
caught! { "misuse":
    touch_reserved => "reserved, but not mapped";
    touch_nothing => "is no device memory";
    touch_no_access => "mapped, but no access was granted";
    write_read_only => "has no such access";
    touch_unmapped => "reserved, but not mapped";
    touch_beyond_end => "freed memory, or was never allocated";
    touch_across_hole => "reserved, but not mapped";
    touch_freed => "freed memory, or was never allocated";
    memset_freed => "cuMemsetD8Async on the legacy default stream writes";
    copy_from_freed => "cuMemcpyDtoDAsync_v2 on the legacy default stream reads";
    copy_to_freed => "cuMemcpyHtoD_v2 on the legacy default stream writes";
    touch_freed_in_order => "freed memory, or was never allocated";
    touch_freed_plain_in_order => "which was freed";
    graph_over_freed => "freed memory, or was never allocated";
    peer_without_access => "has no such access";
    mapping_of_other_device => "has no such access";
}

// Memory that is taken away under work.
caught! { "misuse":
    free_in_order_under_other_stream => "cuMemFreeAsync frees";
    free_pool_memory_in_use => "cuMemFree_v2 frees";
    free_under_another_context => "cuMemFree_v2 frees";
    unmap_in_use => "cuMemUnmap unmaps";
    unmap_late_by_the_clock_only => "cuMemUnmap unmaps";
    unmap_under_a_wait => "cuMemUnmap unmaps";
    take_access_in_use => "cuMemSetAccess takes access from";
    unmap_under_ordered_alias => "cuMemUnmap unmaps";
    unmap_under_second_reader => "cuMemUnmap unmaps";
    unmap_under_one_of_many => "cuMemUnmap unmaps";
    take_access_under_ordered_alias => "cuMemSetAccess takes access from";
    free_address_of_mapping => "is still mapped";
}
caught! { "processes":
    close_ipc_misused => "cuIpcCloseMemHandle closes";
}

// Work without order.
caught! { "misuse":
    race_write_write => "data race: cuSimLaunch";
    race_write_read => "data race: cuSimLaunch";
    race_read_write => "reads the same bytes";
    race_second_reader => "reads the same bytes";
    race_memset => "data race: cuMemsetD8Async";
    race_copy_of_rows => "data race: cuMemcpy2DAsync_v2";
    race_copy_source => "data race: cuMemcpyDtoDAsync_v2";
    race_through_alias => "data race: cuSimLaunch";
    race_legacy_and_non_blocking => "on the legacy default stream writes the same bytes";
    race_event_too_early => "data race: cuSimLaunch";
    race_with_work_before_context_wait => "data race: cuMemsetD8Async";
    race_in_context_that_waits_not => "data race: cuSimLaunch";
    race_behind_green_context => "data race: cuSimLaunch";
    race_after_green_context => "data race: cuSimLaunch";
    race_after_query_not_ready => "data race: cuSimLaunch";
    race_after_destroyed_stream => "data race: cuSimLaunch";
    race_of_threads => "the default stream of thread";
    race_of_graph => "data race: cuSimLaunch";
    race_of_two_executable_graphs => "data race: cuSimLaunch";
    race_of_branches => "of a graph writes";
    race_after_launch => "data race: cuSimLaunch";
    race_with_external_record => "data race: cuMemsetD8Async";
    race_with_external_wait => "data race: cuSimLaunch";
    stale_alias_read => "stale alias: cuSimLaunch";
    stale_alias_write => "stale alias: cuSimLaunch";
    stale_alias_early_edge => "stale alias: cuSimLaunch";
    stale_alias_beside_launches => "stale alias: cuSimLaunch";
}

// What is gone.
caught! { "misuse":
    event_gone => "an event that was destroyed";
}

// Live allocations.
caught! { "misuse":
    claim_twice => "two live allocations: ";
    claim_through_alias => "two live allocations over the same physical bytes";
    claim_in_use => "cuSimClaim receives";
    claim_for_unordered_stream => "cuSimClaim receives";
    claim_of_nothing => "reserved, but not mapped";
    touch_claim_through_alias => "through another address";
    touch_second_claim_through_alias => "through another address";
    unmap_claim => "cuMemUnmap unmaps";
    free_claim => "cuMemFree_v2 frees";
}

// Leaks.
caught! { "misuse":
    leak_allocation => "leaked: 1 allocation(s)";
    leak_handle => "leaked: 1 handle(s)";
    leak_reservation => "leaked: 1 reservation(s)";
    leak_mapping => "leaked: 1 mapping(s)";
    leak_array => "leaked: 1 array(s)";
}
