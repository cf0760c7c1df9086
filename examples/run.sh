#!/bin/sh
# The C example bare and on the pool, two processes that share one name, then a
# recorded trace: what was held before, what is held now. Uses at most 1 GiB of a real GPU if there is one,
# else the simulated GPU. Called by `make run`.
set -eu
release=${1:?usage: run.sh target/release}
release=$(cd "$release" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
memcuda=$release/memcuda
out=$release/run
mkdir -p "$out"

# Of the shell that calls this: `eval "$(memcuda env)"` would put "before" on the pool, too.
unset LD_PRELOAD
for setting in $(env | sed -n 's/^\(MEMCUDA_[A-Z_]*\)=.*/\1/p'); do
    unset "$setting"
done

# MiB that are live at most; an allocator that joins no holes holds half as
# much again.
live=640

# A field of a JSON line.
field() {
    sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | head -n 1
}

gib() {
    awk -v b="$1" 'BEGIN { printf "%.2f GiB", b / 1073741824 }'
}

runtime() {
    for directory in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/lib/x86_64-linux-gnu /usr/lib64; do
        if [ -e "$directory/libcudart.so.13" ]; then
            echo "$directory"
            return
        fi
    done
    # The simulation's runtime calls whatever driver is loaded.
    mkdir -p "$release/runtime"
    cp "$release/sim/libcudart.so.13" "$release/runtime/"
    echo "$release/runtime"
}

if "$memcuda" doctor --json 2>/dev/null | grep -q '"check":"device","status":"ok"'; then
    gpu=$("$memcuda" doctor --json | sed -n 's/.*"check":"device","status":"ok","detail":"\([^"]*\)".*/\1/p' | head -n 1)
    LD_LIBRARY_PATH=$(runtime)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    note=
    where="GPU $gpu, at most 1 GiB of it"
else
    LD_LIBRARY_PATH=$release/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    MEMCUDA_SIM_MEMORY=1GiB
    export MEMCUDA_SIM_MEMORY
    note="The C example's figures are those of the simulated driver, whose pool is simpler than a real one's."
    where="simulated GPU of 1 GiB (no real one answers here)"
fi
export LD_LIBRARY_PATH

# Runs the example; its last line and status are the row of the table.
try() {
    name=$1
    shift
    echo "\$ $*"
    status=0
    "$@" >"$out/$name" || status=$?
    cat "$out/$name"
    [ "$status" -le 1 ] || { echo "the example ended with $status" >&2; exit 1; }
}

echo "== a C program that fragments memory, on the $where"
try bare "$release/fragment" $live
try pool "$memcuda" run -- "$release/fragment" $live

echo "== two processes of an unmodified program, one name, one memory"
# The path of a socket has to be short, that of TMPDIR need not be.
shared=$(mktemp -d /tmp/memcuda-run-XXXXXX)
export MEMCUDA_KEEPER="$shared/keeper.sock"
trap '"$memcuda" keeper stop --force >/dev/null 2>&1 || true; rm -rf "$shared"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[ -z "${MEMCUDA_SIM_MEMORY:-}" ] || export MEMCUDA_SIM_SHARED="$shared/devices"
"$memcuda" keeper --idle 60
rule='size=64MiB,name=examples/weights,dtype=f32,shape=4096x4096'
echo "\$ MEMCUDA_NAMES='$rule' $memcuda run -- $release/named write"
mkfifo "$shared/go"
MEMCUDA_NAMES=$rule "$memcuda" run -- "$release/named" write <"$shared/go" >"$out/writer" &
writer=$!
exec 3>"$shared/go"
for try in $(seq 200); do
    [ -s "$out/writer" ] && break
    sleep 0.05
done
cat "$out/writer"
echo "\$ MEMCUDA_NAMES='$rule' $memcuda run -- $release/named read"
MEMCUDA_NAMES=$rule "$memcuda" run -- "$release/named" read </dev/null >"$out/reader"
cat "$out/reader"
echo "\$ $memcuda ls"
"$memcuda" ls
exec 3>&-
wait "$writer"
[ "$(sed 's/.*checksum //' "$out/writer")" = "$(sed 's/.*checksum //' "$out/reader")" ] ||
    { echo "the two processes read other bytes" >&2; exit 1; }
"$memcuda" keeper stop
trap - EXIT INT TERM
rm -rf "$shared"
unset MEMCUDA_KEEPER MEMCUDA_SIM_SHARED

echo "== a recorded PyTorch job (fine-tuning a language model), replayed without a GPU"
trace=$here/../tests/traces/llm_lora_recompute.csv.zst
"$memcuda" replay --json --profile recorded "$trace" >"$out/recorded.json"
"$memcuda" replay --json --profile native "$trace" >"$out/native.json"
peak=$(field "$out/recorded.json" peak_live_bytes)
pool=$(field "$out/native.json" peak_physical_bytes)
live_bytes=$(field "$out/native.json" peak_live_bytes)

held() {
    sed -n 's/.*, held \([0-9]* MiB\), \([0-9]*\) allocations failed, data \(.*\)/\1, \2 failed, data \3/p' "$1"
}

echo
printf '%-34s %-34s %s\n' "" "before" "with memcuda"
printf '%-34s %-34s %s\n' "C example, $live MiB live: held" "$(held "$out/bare")" "$(held "$out/pool")"
printf '%-34s %-34s %s\n' "PyTorch trace, $(gib "$live_bytes") live: held" "$(gib "$peak") (torch's own)" "$(gib "$pool") (replayed)"
[ -z "$note" ] || echo "$note"
