#!/bin/sh
# Prints the path of a valgrind: from PATH; else from the distribution's package,
# unpacked under DIRECTORY. Says on standard error what it does.
set -eu
directory=${1:?usage: valgrind.sh DIRECTORY}

command -v valgrind && exit 0
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
program=$directory/valgrind

works() {
    [ -x "$program" ] && "$program" --version >/dev/null 2>&1
}

unpack() {
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    cd "$directory"
    apt-get download valgrind >/dev/null 2>&1 || {
        [ "$(id -u)" = 0 ] && apt-get update >&2 && apt-get download valgrind >&2
    } || return 1
    for file in ./valgrind_*.deb; do
        dpkg -x "$file" "$directory/root"
    done
    tools=$(dirname "$(find "$directory/root" -name 'callgrind-*-linux' | head -1)")
    cat >"$program" <<WRAPPER
#!/bin/sh
VALGRIND_LIB='$tools' exec '$directory/root/usr/bin/valgrind' "\$@"
WRAPPER
    chmod +x "$program"
}

if ! works; then
    echo "valgrind.sh: no valgrind on PATH; unpacking the distribution's package under $directory" >&2
    (unpack) || echo "valgrind.sh: that did not work" >&2
fi
works && echo "$program" && exit 0
echo "valgrind.sh: no valgrind: install one (Debian, Ubuntu: apt-get install valgrind)" >&2
exit 1
