//! What a real driver allows passes, and what it answers is answered.

mod support;

/// The case passes, and says nothing.
fn passes(program: &str, library: &str, case: &str, environment: &[(&str, &str)]) {
    let output = support::run(program, library, &[case], environment);
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(
        status.success() && said.is_empty(),
        "{case}: {status}\n{said}"
    );
}

macro_rules! passes {
    ($program:literal, $library:literal, $environment:expr, $($case:ident)*) => {
        $(#[test]
        fn $case() {
            passes($program, $library, stringify!($case), $environment);
        })*
    };
}

passes! { "legal", "libcuda.so.1", &[],
    order_by_event order_by_chain order_by_synchronise order_by_query order_by_context_event order_by_context_wait order_by_whole_context
    order_by_destroyed_stream order_by_value held_by_a_value calls_beside_a_held_wait captured_values
    order_by_legacy_stream order_by_free readers_side_by_side same_address_again
    alias_behind_edge alias_behind_reader unmapped_when_known claims_in_order aliases_see_the_same_bytes
    bytes_move_at_completion staged_and_pinned_copies stream_ordered_reuse
    other_stream_gets_other_bytes host_functions_in_order graphs graph_on_two_streams pageable_memory_of_graph graph_of_two_devices edges_in_graph external_events peers rows_and_slices new_memory_is_not_zero everything_given_back
    clock_runs opening_beside_copies many_allocations more_mappings_than_the_kernel_grants many_threads claim_behind_legacy_stream
}

passes! { "answers", "libcuda.so.1", &[],
    allocation managed_and_arrays stream_ordered lengths_without_end virtual_memory pointer_attributes capture capture_of_streams capture_across_contexts reset
    crash crash_seen_by_a_free crash_seen_by_a_held_wait contexts context_ended_elsewhere freed_and_ended before_init forked lookup values green_streams_told
}
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_FAIL", "cuMemCreate@3=2,cuMemMap%2=999,cuMemAlloc@1=700")], faults }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_FAIL", "*@5=2")], fault_anywhere }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_LACKS", "vmm")], without_mappings }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_LACKS", "descriptors,rdma")], without_kinds_of_handles }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_LACKS", "rdma-access")], without_access_for_cards }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_LACKS", "tables"), ("MEMCUDA_SIM_DEVICES", "2"), ("MEMCUDA_SIM_MEMORY", "64MiB")], without_tables }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_LACKS", "green-streams")], without_green_streams }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_DEVICES", "2")], between_devices }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_CLOCK", "real")], real_clock crash_seen_by_a_wait }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_CLOCK", "off")], no_clock }
passes! { "answers", "libcuda.so.1", &[("MEMCUDA_SIM_FABRIC", "1")], fabric }

passes! { "functions", "libcuda.so.1", &[], writes_for_a_copy behind_two runs_by_itself may_call_little in_a_graph one_after_the_other }
passes! { "functions", "libcuda.so.1", &[("MEMCUDA_SIM_CLOCK", "real")], waited_for waited_for_by_a_free }

passes! { "processes", "libcuda.so.1", &[],
    export_fd descriptor_keeps_memory importer_outlives_exporter export_ipc
}

#[test]
fn shared_device() {
    let file = format!(
        "{}/sim-ledger-{}",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    let settings = [
        ("MEMCUDA_SIM_SHARED", file.as_str()),
        ("MEMCUDA_SIM_MEMORY", "64MiB"),
    ];
    passes("processes", "libcuda.so.1", "shared_device", &settings);
    std::fs::remove_file(file).expect("the file was made");
}

#[test]
fn an_unmodified_runtime_program_runs() {
    passes("runtime", "libcudart.so.13", "", &[]);
}

#[test]
fn bad_settings_are_one_clear_line() {
    for (name, value) in [
        ("MEMCUDA_SIM_DEVICES", "9"),
        ("MEMCUDA_SIM_DEVICES", "0"),
        ("MEMCUDA_SIM_MEMORY", "lots"),
        ("MEMCUDA_SIM_MEMORY", "1"),
        ("MEMCUDA_SIM_CLOCK", "fast"),
        ("MEMCUDA_SIM_FAIL", "cuMemCreate"),
        ("MEMCUDA_SIM_FAIL", "cuMemCreate@0=2"),
        ("MEMCUDA_SIM_FAIL", "cuMemCreate@1=0"),
        ("MEMCUDA_SIM_FAIL", "cuMemCraete@1=2"),
        ("MEMCUDA_SIM_FABRIC", "yes"),
        ("MEMCUDA_SIM_LACKS", "vmm,everything"),
        ("MEMCUDA_SIM_SHARED", "/no/such/directory/file"),
    ] {
        let output = support::run(
            "answers",
            "libcuda.so.1",
            &["refused_settings"],
            &[(name, value)],
        );
        let said = String::from_utf8_lossy(&output.stderr);
        let clear = said.starts_with(&format!("memcuda-sim: {name}={value}"));
        assert!(
            output.status.success() && clear && said.lines().count() == 1,
            "{name}={value}: {said}"
        );
    }
}
