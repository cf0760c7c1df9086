//! Torch gives pages up of streams that were destroyed, and of some that capture: for them its wait
//! before an unmapping is refused, where memory of cudaMalloc's would go by a cudaFree.

use crate::order::waits;

#[test]
fn torch_gives_up_what_it_has_of_a_stream_that_is_gone() {
    waits("asked", &[]);
    waits("runs", &[]);
    waits("crashed", &[]);
    // Its context is waited for, by whatever call.
    for call in ["cuCtxRecordEvent", "cuEventSynchronize", "cuEventCreate"] {
        let fault = format!("{call}%1=999");
        waits("runs", &[("MEMCUDA_SIM_FAIL", &fault)]);
    }
}

/// Torch waits for the new one, and has no word for the other.
#[test]
fn work_of_a_stream_that_is_gone_is_waited_for_though_another_one_has_its_handle() {
    for case in ["again", "again_asked", "again_beside"] {
        waits(case, &[]);
    }
    // There is no event for it.
    waits("again", &[("MEMCUDA_SIM_FAIL", "cuEventRecord%1=999")]);
}

#[test]
fn a_stream_may_be_gone_with_its_green_context() {
    waits("green", &[]);
    waits("green_runs", &[]);
    waits("left", &[]);
    waits("left_destroyed", &[]);
}

/// Whatever calls fail that only the order needs.
#[test]
fn streams_come_and_go_and_no_page_is_used_too_early() {
    for case in ["storm 1", "storm 2"] {
        waits(case, &[]);
        waits(case, &[("MEMCUDA_SIM_FAIL", "cuEventRecord%2=999")]);
    }
}

/// As cudaFree, which a capture of another thread forbids if it is a global one.
#[test]
fn torch_gives_up_what_it_has_of_a_stream_that_captures() {
    for mode in ["global", "thread", "relaxed", "blocking"] {
        waits(&format!("captured_{mode}"), &[]);
    }
    let full = "cuMemAlloc_v2%1=2,cuMemHostAlloc%1=2";
    waits("captured_thread", &[("MEMCUDA_SIM_FAIL", full)]);
}
