#!/bin/sh
# Builds the differential program with a plain C compiler: no CUDA, no network.
#   tests/differential/build.sh OUTPUT
# The same program runs over the simulated GPU and over a real driver.
set -eu
output=${1:?usage: tests/differential/build.sh OUTPUT}
case $output in /*) ;; *) output=$PWD/$output ;; esac
cd "$(dirname "$0")"
# Compiled aside and renamed: somebody may be running the old one. With the checks that Ubuntu's compilers turn on.
"${CC:-cc}" -std=gnu11 -O1 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -Wall -Wextra -Werror -fvisibility=hidden -pthread \
    -o "$output.$$" ./*.c -ldl
mv "$output.$$" "$output"
