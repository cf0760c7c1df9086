//! docs/entry-points.md against the library: nothing is intercepted that it
//! does not name, nothing named is missing, and each row's test names it.

use std::collections::BTreeSet;
use std::path::Path;

/// The names in backticks of one cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of a section's table, as cells.
fn rows<'a>(document: &'a str, section: &str) -> Vec<Vec<&'a str>> {
    let body = document.split(section).nth(1).expect("the section");
    let body = body.split("\n## ").next().expect("its end");
    let table = body.lines().filter(|line| line.starts_with("| `"));
    table
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// Through these a program asks about, shares, frees or resets memory; each
/// must stand somewhere.
const MUST_STAND: &str = "
    dlsym cuGetProcAddress cuGetProcAddress_v2 cuGetProcAddress_v2_ptsz cudaGetDriverEntryPoint
    cudaGetDriverEntryPoint_ptsz cudaGetDriverEntryPointByVersion cudaGetDriverEntryPointByVersion_ptsz cuInit
    cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemFreeAsync cuMemFreeAsync_ptsz cuMemAllocAsync
    cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemAllocManaged cuMemCreate
    cuArrayCreate_v2 cuArray3DCreate_v2 cuMipmappedArrayCreate cuPointerGetAttribute cuPointerGetAttributes
    cuPointerSetAttribute cuMemGetAddressRange_v2 cuMemRetainAllocationHandle cuMemGetHandleForAddressRange
    cuMemGetInfo_v2 cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle
    cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2
    cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2 cuCtxDestroy_v2 cuCtxDetach cuStreamBeginCapture
    cuStreamBeginCapture_v2 cuStreamBeginCaptureToGraph cuStreamBeginRecaptureToGraph cuStreamEndCapture
    cuStreamBeginCapture_ptsz cuStreamBeginCapture_v2_ptsz cuStreamBeginCaptureToGraph_ptsz
    cuStreamBeginRecaptureToGraph_ptsz cuStreamEndCapture_ptsz cuStreamCreate cuStreamCreateWithPriority
    cuStreamDestroy_v2 cuGreenCtxStreamCreate cuGreenCtxDestroy cuLaunchKernel cuMemcpyDtoH_v2
    cuStreamSynchronize cuEventQuery cuGetExportTable";

#[test]
fn the_table_is_what_the_library_exports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let document = std::fs::read_to_string(root.join("docs/entry-points.md")).unwrap();
    let intercepted = rows(&document, "\n## Intercepted\n");
    let left = rows(&document, "\n## Left to the driver\n");
    assert!(
        intercepted.iter().all(|row| row.len() == 3),
        "{intercepted:?}"
    );
    assert!(
        left.iter().all(|row| row.len() == 2 && row[1].len() > 10),
        "{left:?}"
    );

    let mut named = BTreeSet::new();
    for name in intercepted
        .iter()
        .chain(&left)
        .flat_map(|row| names(row[0]))
    {
        assert!(named.insert(name), "{name} stands in two rows");
    }
    let exported: BTreeSet<_> = include_str!("../../exports.txt").lines().collect();
    let hooked: BTreeSet<_> = intercepted.iter().flat_map(|row| names(row[0])).collect();
    assert_eq!(
        hooked, exported,
        "docs/entry-points.md and shim/exports.txt"
    );

    for row in &intercepted {
        let tests = names(row[2]);
        assert!(!tests.is_empty(), "no test: {row:?}");
        for test in tests {
            let text = std::fs::read_to_string(root.join(test));
            let text = text.unwrap_or_else(|error| panic!("{test}: {error}"));
            let words: BTreeSet<_> = text
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .collect();
            for name in names(row[0]) {
                assert!(words.contains(name), "{test} does not name {name}");
            }
        }
    }
    for name in MUST_STAND.split_whitespace() {
        assert!(named.contains(name), "{name} stands nowhere");
    }
}
