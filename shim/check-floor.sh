#!/bin/sh
# Libraries ask for no symbol of a glibc newer than the oldest one that is
# supported (README.md):   shim/check-floor.sh LIBRARY...
# What to do where they do: shim/src/libraries/old_libc.rs.
set -eu
floor=2.23
[ $# -gt 0 ] || { echo "usage: shim/check-floor.sh LIBRARY..." >&2; exit 2; }
if ! grep -q "glibc $floor or later" "$(dirname "$0")/../README.md"; then
    echo "README.md does not say: glibc $floor or later" >&2
    exit 1
fi
for library; do
    needs=$(objdump -T "$library")
    newer=$(echo "$needs" | awk -v floor="${floor#2.}" '
        match($0, /GLIBC_2\.[0-9]+/) &&
            substr($0, RSTART + 8, RLENGTH - 8) + 0 > floor + 0 { print "    " $0 }')
    if ! echo "$needs" | grep -q 'GLIBC_2\.'; then
        echo "$library asks for nothing of glibc: the check does not see it" >&2
        exit 1
    fi
    if [ -n "$newer" ]; then
        echo "$library needs a glibc newer than $floor (shim/src/libraries/old_libc.rs):" >&2
        echo "$newer" >&2
        exit 1
    fi
done
