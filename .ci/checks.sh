# Sourced by run and beside: runs checks, counts which pass. Decides nothing about what
# is checked.
set -u
cd "$(dirname "$0")/.." || exit 1
export CARGO_TERM_COLOR=never
passed=0
failed=0
logs=target/ci
mkdir -p "$logs"

# Runs a command, shows what it says, and leaves its status in `status`.
# (A pipe's status is tee's, hence the file.)
keep() {
    log=$1
    shift
    { "$@" 2>&1; echo $? >"$log.status"; } | tee "$log"
    status=$(cat "$log.status")
}

check() {
    name=$1
    shift
    echo "== $name"
    keep "$logs/${0##*/}.check" "$@"
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
    else
        echo "== $name FAILED"
        failed=$((failed + 1))
    fi
}

# The sum, as the last line; fails where anything did.
sum() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
