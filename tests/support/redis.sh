#!/bin/sh
# Prints the path of a redis-server: from PATH; else from the distribution's
# package, unpacked with the libraries it needs under DIRECTORY; else, as root,
# installed. Says on standard error what it does.
set -eu
directory=${1:?usage: redis.sh DIRECTORY}

command -v redis-server && exit 0
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
server=$directory/redis-server

works() {
    [ -x "$server" ] && "$server" --version >/dev/null 2>&1
}

# Package names: the server, its tools (which hold the program itself) and the
# libraries of both that a small system may lack.
packages() {
    apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances redis-server 2>/dev/null |
        grep -E '^(redis|lib(atomic|jemalloc|lzf|lua|hiredis|ssl|systemd|cap2|gcrypt|gpg-error|lz4|lzma|zstd))' |
        sort -u
}

unpack() {
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    mkdir -p "$directory/packages"
    cd "$directory/packages"
    if [ -z "$(packages)" ] && [ "$(id -u)" = 0 ]; then
        apt-get update >&2 || return 1
    fi
    for package in $(packages); do
        # A name without a package of its own (a virtual one) is passed over;
        # what is really missing shows when the server is tried.
        apt-get download "$package" >/dev/null 2>&1 || continue
    done
    for file in ./*.deb; do
        [ -f "$file" ] && dpkg -x "$file" "$directory/root"
    done
    [ -x "$directory/root/usr/bin/redis-server" ] || return 1
    libraries=$(find "$directory/root" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d : -)
    cat >"$server" <<WRAPPER
#!/bin/sh
LD_LIBRARY_PATH='$libraries' exec '$directory/root/usr/bin/redis-server' "\$@"
WRAPPER
    chmod +x "$server"
}

if ! works; then
    echo "redis.sh: no redis-server on PATH; unpacking the distribution's package under $directory" >&2
    (unpack) || echo "redis.sh: that did not work" >&2
fi
if works; then
    echo "$server"
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "redis.sh: installing redis-server" >&2
    # RUNLEVEL 1 keeps the package from starting a service.
    apt-get update >&2
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends redis-server >&2
    command -v redis-server && exit 0
fi
echo "redis.sh: no redis-server: install one (Debian, Ubuntu: apt-get install redis-server)" >&2
exit 1
