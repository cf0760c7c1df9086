#!/bin/sh
# The symbols that libmemcuda.so exports are those of exports.txt, no more and
# no fewer:   shim/check-exports.sh target/release/libmemcuda.so
set -eu
library=${1:?usage: shim/check-exports.sh LIBRARY}
list=$(dirname "$0")/exports.txt
found=$(mktemp)
trap 'rm -f "$found"' EXIT
nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort > "$found"
if ! LC_ALL=C sort "$list" | diff -u - "$found"; then
    echo "$library does not export what $list says ('-': missing, '+': not listed)" >&2
    exit 1
fi
if readelf -d "$library" | grep NEEDED | grep -i -E 'cuda|nvidia'; then
    echo "$library must not need anything of CUDA: without it every program would fail to start" >&2
    exit 1
fi
if readelf -d "$library" | grep NEEDED | grep libgcc_s; then
    echo "$library must not need libgcc_s, which every program would load: shim/src/libraries/unwind.rs lacks one of these:" >&2
    nm -D --undefined-only "$library" | grep _Unwind >&2
    exit 1
fi
