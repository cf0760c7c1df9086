#!/bin/sh
# Places the built simulated libraries under the names that the loader looks for:
#   sim/install.sh target/release   ->   target/release/sim/libcuda.so.1, .../libcudart.so.13
# They are in a directory of their own, so that nothing finds them by accident.
set -eu
dir=${1:?usage: sim/install.sh target/PROFILE}
for pair in cuda:libcuda.so.1 cudart:libcudart.so.13; do
    built=$dir/libmemcuda_sim_${pair%%:*}.so
    if [ ! -f "$built" ]; then
        echo "sim/install.sh: $built is missing; build it with: cargo build -p memcuda-sim-${pair%%:*}" >&2
        exit 1
    fi
    mkdir -p "$dir/sim"
    # Copied aside and renamed: a program that runs on the old file keeps it whole.
    cp "$built" "$dir/sim/.${pair##*:}.$$"
    mv "$dir/sim/.${pair##*:}.$$" "$dir/sim/${pair##*:}"
done
