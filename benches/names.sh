#!/bin/sh
# What a name costs: benches/names.c over a keeper of its own, on the GPU if one
# answers, else on the simulated one. Usage: benches/names.sh target/release
set -eu
release=$(cd "${1:?usage: names.sh target/release}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap '"$release/memcuda" keeper stop --force >/dev/null 2>&1 || true; rm -rf "$place"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export MEMCUDA_KEEPER="$place/keeper.sock"
${CC:-cc} -O2 -Wall -Wextra "$here/names.c" -o "$place/names" -L"$release/sim" -l:libcudart.so.13
if "$release/memcuda" doctor --json 2>/dev/null | grep -q '"check":"device","status":"ok"'; then
    mkdir "$place/runtime"
    cp "$release/sim/libcudart.so.13" "$place/runtime/"
    LD_LIBRARY_PATH=$place/runtime${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    echo "over the simulated GPU, whose mappings are the kernel's"
    LD_LIBRARY_PATH=$release/sim
    export MEMCUDA_SIM_SHARED="$place/devices"
fi
export LD_LIBRARY_PATH
"$release/memcuda" keeper --idle 60
"$release/memcuda" run -- "$place/names"
