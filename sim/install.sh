#!/bin/sh
# Places the built simulated libraries under the names that the loader looks for:
#   sim/install.sh target/release   ->   target/release/sim/libcuda.so.1, .../libcudart.so.13
# They are in a directory of their own, so that nothing finds them by accident; the
# management library, where it was built, is in one more: .../sim/nvml/libnvidia-ml.so.1
set -eu
dir=${1:?usage: sim/install.sh target/PROFILE}

# Copied aside and renamed: a program that runs on the old file keeps it whole.
place() {
    mkdir -p "$dir/sim/$(dirname "$2")"
    cp "$1" "$dir/sim/$2.$$"
    mv "$dir/sim/$2.$$" "$dir/sim/$2"
}

for pair in cuda:libcuda.so.1 cudart:libcudart.so.13; do
    built=$dir/libmemcuda_sim_${pair%%:*}.so
    if [ ! -f "$built" ]; then
        echo "sim/install.sh: $built is missing; build it with: cargo build -p memcuda-sim-${pair%%:*}" >&2
        exit 1
    fi
    place "$built" "${pair##*:}"
done
if [ -f "$dir/libmemcuda_sim_nvml.so" ]; then
    place "$dir/libmemcuda_sim_nvml.so" nvml/libnvidia-ml.so.1
fi
