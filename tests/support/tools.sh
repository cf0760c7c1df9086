#!/bin/sh
# What `make test` needs besides Rust, make and a C compiler: installed where root may,
# else named. What can be unpacked under target/ is program.sh's affair.
set -eu
lacking=
for tool in g++ python3; do
    command -v "$tool" >/dev/null || lacking="$lacking $tool"
done
[ -n "$lacking" ] || exit 0
install() {
    # shellcheck disable=SC2086 # several words
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $lacking
}
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "tools.sh: installing$lacking" >&2
    install || { apt-get update && install; }
else
    echo "tools.sh: the tests need$lacking: install them (Debian, Ubuntu: apt-get install$lacking)" >&2
    exit 1
fi
