#!/bin/sh
# Programs with many threads over the simulated GPU, on a library that LLVM's ThreadSanitizer
# watches: fails where a data race is reported. It does not see in which order the library
# takes its locks, which are none of libc's. Needs a nightly toolchain with rust-src.
#
#   tests/threads/run.sh target/debug     the directory with .../sim
#
# The simulated GPU is not watched: its one lock would order the library's threads, as a real
# driver need not, and hide what they do without an order of their own.
set -eu
built=$(cd "${1:?usage: tests/threads/run.sh target/PROFILE}" && pwd)
cd "$(dirname "$0")/../.."
target=$PWD/target/threads
triple=$(rustc -vV | sed -n 's/^host: //p')
nightly=$(rustc +nightly --print sysroot) || exit 1
runtime=$nightly/lib/rustlib/$triple/lib/librustc-nightly_rt.tsan.a
for needed in "$runtime" "$nightly/lib/rustlib/src/rust/library/Cargo.lock"; do
    if [ ! -f "$needed" ]; then
        echo "tests/threads: no $needed: rustup toolchain install nightly --component rust-src" >&2
        exit 1
    fi
done

# Part of the standard library is the libraries' own code: it is built watched as well.
CARGO_TARGET_DIR=$target RUSTFLAGS="-Zsanitizer=thread -Cdebuginfo=1" CARGO_PROFILE_DEV_OPT_LEVEL=1 \
    cargo +nightly build -Zbuild-std --target "$triple" -p memcuda-shim
library=$target/$triple/debug

# What the runtime looks up while it starts is libc's: the library's own dlsym is watched, and
# cannot run yet.
objcopy --redefine-sym dlsym=libc_dlsym "$runtime" "$target/runtime.a"

compile() {
    name=$1
    shift
    # The library comes before all others, as if it were preloaded, but is not in whatever
    # the program starts: the runtime starts a program that reads lines of code.
    gcc -std=gnu11 -O1 -g -Wl,--export-dynamic -Wl,--no-as-needed "$@" tests/threads/dlsym.c \
        -Wl,--whole-archive "$target/runtime.a" -Wl,--no-whole-archive \
        "-L$library" "-L$built/sim" -l:libmemcuda.so -l:libcudart.so.13 -l:libcuda.so.1 \
        -pthread -ldl -lm -lrt -lresolv -o "$target/$name"
}
tests=shim/tests
compile random $tests/random/random.c $tests/random/blocks.c $tests/random/capture.c
compile contexts $tests/random/contexts.c
compile threads $tests/behaviour/threads.c

failed=0
run() {
    echo "tests/threads: $*"
    env -i "PATH=$PATH" "LD_LIBRARY_PATH=$library:$built/sim" MEMCUDA_KEEPER=off \
        MEMCUDA_SIM_DEVICES=2 TSAN_OPTIONS="history_size=7:allow_addr2line=1:suppressions=tests/threads/suppressions" \
        "$@" || failed=$((failed + 1))
}
for settings in MEMCUDA_FREE=auto MEMCUDA_FREE=ordered MEMCUDA_POLICY=direct MEMCUDA_POLICY=track \
    MEMCUDA_CHUNK=2MiB MEMCUDA_DEBUG=canary MEMCUDA_SIM_CLOCK=real "MEMCUDA_TRACE=$target/trace"; do
    run "$settings" "$target/random" 1 10000 8
    run "$settings" "$target/contexts" 1 8000 8
done
# Legal where a free waits for the context.
run MEMCUDA_FREE=auto "$target/threads"
run MEMCUDA_SIM_CLOCK=real "$target/threads"
run RANDOM_FORK=1 "$target/random" 2 10000 8
run RANDOM_SHORT=1 MEMCUDA_LIMIT=150MiB "$target/random" 3 10000 8
run RANDOM_SHORT=1 MEMCUDA_SIM_MEMORY=300MiB "$target/contexts" 3 8000 8
if [ $failed != 0 ]; then
    echo "tests/threads: $failed runs failed" >&2
    exit 1
fi
