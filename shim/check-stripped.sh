#!/bin/sh
# A release build brings no names of its own functions, in which a debugger would stop for the
# program's:   shim/check-stripped.sh target/release/libmemcuda.so
set -eu
library=${1:?usage: shim/check-stripped.sh LIBRARY}
if readelf -S "$library" | grep -E '\.symtab|\.debug_'; then
    echo "$library has symbols beside those it exports (Cargo.toml: strip)" >&2
    exit 1
fi
