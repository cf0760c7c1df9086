//! Pages beside green contexts, which are views of the primary one: whose they are, and what is
//! waited for before they are another's.

use crate::order::ladder;

const TWO: (&str, &str) = ("MEMCUDA_SIM_DEVICES", "2");

#[test]
fn a_green_context_has_its_order_until_it_goes() {
    ladder("viewed", &[]);
    // Also where the pool cannot wait for all of it, and after an end that failed.
    let faults = "cuCtxRecordEvent%1=999,cuCtxSynchronize%1=999";
    ladder("viewed", &[("MEMCUDA_SIM_FAIL", faults)]);
    ladder("stays", &[("MEMCUDA_SIM_FAIL", "cuGreenCtxDestroy@1=999")]);
}

/// Torch waits for one of them.
#[test]
fn pages_are_waited_for_in_the_default_streams_of_all_green_contexts() {
    ladder("default", &[]);
    ladder("default_asked", &[]);
}

#[test]
fn pages_mapped_in_a_green_context_are_the_primary_ones() {
    ladder("spans", &[TWO]);
}

#[test]
fn pages_of_another_device_are_waited_for_in_all_its_green_contexts() {
    for view in ["view", "gone", "inside"] {
        ladder(&format!("elsewhere_{view}"), &[TWO]);
    }
}
