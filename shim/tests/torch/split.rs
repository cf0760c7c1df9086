//! Torch's split size: this library's is torch's only as long as torch can be asked.

use crate::{NATIVE, Run, torch, train_with};

const SEGMENTS: (&str, &str) = ("MEMCUDA_TORCH", "segments");
const EXPANDABLE: (&str, &str) = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");

/// Stand-ins for releases whose split size lies elsewhere each, and settings under which it is ours.
const RELEASES: [(&str, &[(&str, &str)]); 5] = [
    ("oldest", &[NATIVE]),
    ("older", &[NATIVE]),
    ("", &[NATIVE]),
    ("expandable", &[SEGMENTS]),
    ("expandable", &[NATIVE, EXPANDABLE]),
];

/// Succeeds where the split size was there, and then was as the case says.
fn run(release: &str, case: &str, settings: &[(&str, &str)]) -> Run {
    let run = train_with(&torch().join(release), case, settings);
    assert!(run.setting.contains("max_split_size_mb"), "{run:?}");
    run
}

#[test]
fn it_stays_when_a_pool_ends() {
    for (release, settings) in RELEASES {
        run(release, "stays end", settings);
    }
}

/// There torch would give back what graphs replay on, or hold more than it needs.
#[test]
fn torch_has_none_of_ours_once_a_private_pool_opens() {
    for (release, settings) in RELEASES {
        run(release, "split pool", settings);
    }
}

#[test]
fn torch_has_none_of_ours_once_it_is_asked_no_more() {
    for (release, settings) in RELEASES {
        for by in ["oom", "uncached"] {
            run(release, &format!("split {by}"), settings);
        }
    }
}

/// What it gives back and asks for again are the driver's calls there, which wait.
#[test]
fn torch_has_none_of_ours_and_is_not_asked_where_nothing_can_be_pooled() {
    for (release, settings) in RELEASES {
        // It would end at its first page.
        if !settings.contains(&EXPANDABLE) {
            let settings = [settings, &[("MEMCUDA_SIM_LACKS", "vmm")]].concat();
            let run = run(release, "no split", &settings);
            assert_eq!(run.retries, 0, "{run:?}");
        }
    }
}

#[test]
fn the_users_stays() {
    for release in ["oldest", "older", "", "expandable"] {
        for by in ["pool", "oom", "uncached"] {
            let own = ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64");
            run(release, &format!("stays {by}"), &[SEGMENTS, own]);
        }
    }
}

/// With pages that the profile alone turned on torch would cut up what it then takes for whole.
#[test]
fn the_users_goes_once_a_private_pool_opens_beside_pages() {
    let own = ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64");
    run("expandable", "split pool", &[NATIVE, own]);
}
