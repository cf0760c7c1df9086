//! Who writes into the functions that it finds hears of all that is allocated and freed.

use super::{LIBRARY, compile, preloaded, said, shim, simulator};

#[test]
fn comfyuis_memory_manager_hears_of_every_allocation_and_makes_room_for_it() {
    let directory = format!("-L{}", simulator().display());
    let needs = [directory.as_str(), "-l:libcudart.so.13", "-l:libcuda.so.1"];
    let library = [&LIBRARY[..], &needs].concat();
    let library = compile("writer.c", "libwriter.so", &library);
    let program = [&needs[..], &["-DPROGRAM", "-ldl"]].concat();
    let program = compile("writer.c", "writer", &program);
    for libraries in [&[][..], &[shim()]] {
        let mut command = preloaded(&program, libraries);
        command.env("MEMCUDA_SIM_MEMORY", "16GiB");
        let (out, log) = said(command.arg(&library));
        let expected = ("heard of 512, 0, 256, 6144\n", "");
        assert_eq!((out.as_str(), log.as_str()), expected);
    }
}
