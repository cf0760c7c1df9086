#!/bin/sh
# Builds the conformance program with a plain C compiler: no CUDA, no network.
#   tests/conformance/build.sh OUTPUT
# The same program runs over the simulated GPU and over a real driver.
set -eu
output=${1:?usage: tests/conformance/build.sh OUTPUT}
case $output in /*) ;; *) output=$PWD/$output ;; esac
here=$(cd "$(dirname "$0")" && pwd)
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
# The kernels as one C string; the text has no quotes and no backslashes.
sed 's/.*/"&\\n"/' "$here/kernels.ptx" >"$parts/kernels.inc"
cd "$here"
# Compiled aside and renamed: somebody may be running the old one. With the checks that Ubuntu's compilers turn on.
"${CC:-cc}" -std=gnu11 -O1 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -Wall -Wextra -Werror -fvisibility=hidden -pthread \
    -I"$parts" -I"$here/../../sim/include" -o "$output.$$" ./*.c -ldl
mv "$output.$$" "$output"
