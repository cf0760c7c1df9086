//! Whose functions UCX finds, by which it hears what memory comes and goes.

use super::{LIBRARY, compile, preloaded, said, shim, simulator};

#[test]
fn who_writes_into_functions_and_looks_at_mappings_finds_the_drivers_own() {
    let directory = format!("-L{}", simulator().display());
    let needs = ["-l:libcuda.so.1", "-l:libcudart.so.13", "-ldl"];
    let needs = [&["-Wl,--no-as-needed", directory.as_str()][..], &needs].concat();
    let library = |name: &str, defined: &str| {
        let arguments = [&LIBRARY[..2], &needs, &[defined]].concat();
        compile("patcher.c", name, &arguments)
    };
    let [writes, redirects, does_both] =
        [4, 2, 6].map(|modes| library(&format!("libmodes{modes}.so"), &format!("-DMODES={modes}")));
    let before = library("libold.so", "-DNO_MODES");
    let other = library("libnotucx.so", "-DOTHER");
    let program = compile("patcher.c", "patcher", &["-DPROGRAM", "-ldl"]);
    let disabled = Some(("MEMCUDA_DISABLE", "1"));
    let (drivers, ours) = ("libcuda.so.1", "libmemcuda.so");
    for (library, setting, behind, file, from_driver) in [
        (&writes, None, drivers, drivers, ours),
        (&redirects, None, ours, ours, ours),
        (&does_both, None, ours, ours, ours),
        (&before, None, ours, ours, ours),
        (&before, disabled, drivers, drivers, drivers),
        (&other, None, drivers, ours, ours),
    ] {
        let two = |file| format!("cuMemAlloc_v2 in {file}\ncuMemFreeAsync in {file}\n");
        let lines = format!(
            "cudaFree in libcudart.so.13\n{}{}cuMemFree in {from_driver}\n",
            two(behind),
            two(file).repeat(2)
        );
        let mut linked = preloaded("/bin/true", &[shim(), library.clone()]);
        let mut loaded = preloaded(&program, &[shim()]);
        for command in [&mut linked, loaded.arg(library)] {
            let (out, log) = said(command.envs(setting));
            let expected = (lines.as_str(), "");
            assert_eq!((out.as_str(), log.as_str()), expected, "{command:?}");
        }
    }
}
