#!/bin/sh
# What a user does first, on a real GPU, in under two minutes: the command, the
# examples, the comparison by NVML. Prints a PASS or FAIL line each; ends with 1
# if any failed. Builds nothing but the statically linked example.
#
#   tests/gpu/smoke.sh [target/release]
#
# Needs an NVIDIA GPU with 6 GiB free, a C compiler, libcudart_static.a and, for
# the fine-tune, torch. PYTHON names another python3.
set -u
cd "$(dirname "$0")/../.." || exit 1
release=${1:-target/release}
memcuda=$release/memcuda
python=${PYTHON:-python3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0
failed=0

# say STATUS NAME DETAIL
say() {
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
        echo "PASS $2${3:+: $3}"
    else
        failed=$((failed + 1))
        echo "FAIL $2${3:+: $3}"
    fi
}

# try NAME SECONDS COMMAND...: runs it; what it says goes to $out/NAME, and to
# $out/NAME.err. The status is the command's.
try() {
    name=$1
    seconds=$2
    shift 2
    timeout "$seconds" "$@" >"$out/$name" 2>"$out/$name.err"
}

# The last line that a command said.
last() {
    grep -v '^ *$' "$out/$1" | tail -n 1 | cut -c 1-200
}

# Why a command failed: what it wrote as errors, shortened.
why() {
    grep -v '^ *$' "$out/$1.err" | tail -n 3 | tr '\n' ' ' | cut -c 1-300
}

# field NAME KEY: the first value of a key in JSON lines.
field() {
    sed -n "s/.*\"$2\": *\"\{0,1\}\([^,\"}]*\).*/\1/p" "$out/$1" | head -n 1
}

for file in "$memcuda" "$release/libmemcuda.so"; do
    [ -e "$file" ] || { echo "FAIL: $file is missing; build it first (make build)"; exit 1; }
done
if ! nvidia-smi -L 2>/dev/null | grep -q 'GPU 0'; then
    echo "FAIL: this needs an NVIDIA GPU and its driver; nvidia-smi lists none"
    exit 1
fi

try doctor 30 "$memcuda" doctor --json
status=$?
grep -q '"check":"device","status":"ok"' "$out/doctor" || status=1
grep -q 'simulated' "$out/doctor" && status=1
say $status "memcuda doctor" "$(grep -o '"check":"device".*' "$out/doctor" | head -n 1 | cut -c 1-160)"

# The C example, with the runtime linked statically.
try static 60 make -s fragment-static RELEASE="$release"
status=$?
say $status "make fragment-static" "$([ $status = 0 ] || why static)"
if [ $status = 0 ]; then
    for way in async plain; do
        try bare 30 "$release/fragment-static" 640 $way
        bare=$?
        try pool 30 "$memcuda" run -- "$release/fragment-static" 640 $way
        pool=$?
        grep -q 'data right' "$out/bare" && grep -q 'data right' "$out/pool" && [ $bare = 0 ] && [ $pool = 0 ]
        say $? "static C example, $way" "bare: $(last bare)$(why bare) | pool: $(last pool)$(why pool)"
    done
    try doctor_static 30 "$memcuda" doctor --json -- "$release/fragment-static" 256
    status=$?
    grep -q 'cuMemAlloc' "$out/doctor_static" || status=1
    say $status "memcuda doctor of the static example" "$([ $status = 0 ] || why doctor_static)"
fi

# What `make run` does after its build.
try example 90 examples/run.sh "$release"
status=$?
grep -q 'simulated GPU of' "$out/example" && status=1
say $status "examples/run.sh" "$(grep 'C example,' "$out/example" | tail -n 1 | tr -s ' ')$([ $status = 0 ] || why example)"

# A torch program bare, on the pool while `memcuda stat` looks on, and compared.
finetune="examples/torch_finetune.py --steps 10 --layers 6"
# shellcheck disable=SC2086
try finetune 60 "$python" $finetune
bare=$?
# shellcheck disable=SC2086
try pooled 60 "$memcuda" run -- "$python" $finetune &
child=$!
seen=
while kill -0 $child 2>/dev/null; do
    try stat 10 "$memcuda" stat --all --json
    held=$(field stat physical_bytes)
    case $held in '' | 0) ;; *) seen=$held ;; esac
    sleep 0.2
done
wait $child
pool=$?
same=1
for key in losses_sha256 weights_sha256 peak_live_bytes; do
    [ -n "$(field finetune $key)" ] && [ "$(field finetune $key)" = "$(field pooled $key)" ] || same=0
done
[ $bare = 0 ] && [ $pool = 0 ] && [ $same = 1 ]
say $? "examples/torch_finetune.py" "status $bare and $pool, weights $(field finetune weights_sha256) and $(field pooled weights_sha256), \
reserved $(field finetune peak_reserved_bytes) and $(field pooled peak_reserved_bytes) bytes$([ $pool = 0 ] || why pooled)"
[ -n "$seen" ]
say $? "memcuda stat --all" "${seen:-no} bytes held, seen from outside"

# shellcheck disable=SC2086
try compare 110 "$memcuda" compare --json --repeat 1 --profiles bare,native -- "$python" $finetune
status=$?
[ "$(grep -c '"device_meter":"nvml"' "$out/compare")" = 2 ] || status=1
[ "$(grep -c '"peak_device_bytes":[1-9]' "$out/compare")" = 2 ] || status=1
grep -q '"saved_bytes":-\{0,1\}[0-9]' "$out/compare" || status=1
say $status "memcuda compare, by NVML" "$(sed -n 's/.*"profile":"\([a-z]*\)".*"peak_device_bytes":\([0-9]*\).*/\1 \2 bytes/p' "$out/compare" | tr '\n' ' ')$([ $status = 0 ] || why compare)"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
