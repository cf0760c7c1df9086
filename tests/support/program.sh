#!/bin/sh
# Prints the path of a program that tests and benches run: from PATH; else from
# the distribution's package, unpacked under DIRECTORY with the libraries that
# are not installed here; else, as root, installed. Says on standard error what it
# does.
set -eu
usage='usage: program.sh redis-server|chromium|valgrind DIRECTORY'
package=${1:?$usage}
directory=${2:?$usage}

# What else it is called on PATH, and where it lies in the package.
names=$package
case $package in
redis-server) inside=usr/bin/redis-server ;;
chromium)
    names="$names chromium-browser google-chrome google-chrome-stable"
    inside=usr/lib/chromium/chromium
    ;;
valgrind) inside=usr/bin/valgrind ;;
*)
    echo "program.sh: $package: $usage" >&2
    exit 2
    ;;
esac

# Some distributions have commands that only say what to install.
works() {
    "$1" --version >/dev/null 2>&1
}

# Ends here where one of the names is on PATH.
from_path() {
    for name in $names; do
        if works "$name"; then
            command -v "$name"
            exit 0
        fi
    done
}

from_path
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
program=$directory/$package
root=$directory/root

# What lies in packages/ then is unpacked.
apt() {
    apt-get -o "Dir::Cache::archives=$directory/packages" -o Debug::NoLocking=1 -o APT::Sandbox::User= "$@" >&2
}

# The package, and of what it needs what is not installed.
download() {
    apt "$@" install --download-only --no-install-recommends -y "$package"
}

from_distribution() {
    # Old lists name files that are gone.
    download || { [ "$(id -u)" = 0 ] && apt-get update >&2 && download; }
}

# Ubuntu's chromium only fetches a snap. Debian's runs there, too, with all that it
# needs but the C library.
from_debian() {
    [ "$package" = chromium ] || return 1
    own=$directory/debian
    mkdir -p "$own/lists/partial"
    (cd "$own" && apt-get download debian-archive-keyring && dpkg -x debian-archive-keyring_*.deb .) >&2 || return 1
    from="deb [signed-by=$own/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org"
    printf '%s\n' "$from/debian bookworm main" "$from/debian-security bookworm-security main" >"$own/sources.list"
    : >"$own/status"
    set -- -o "Dir::State=$own" -o "Dir::State::status=$own/status" -o "Dir::Cache=$own" \
        -o "Dir::Etc::sourcelist=$own/sources.list" -o Dir::Etc::sourceparts=-
    apt "$@" update && download "$@" && rm -f "$directory"/packages/libc6_*.deb
}

# The folder of a file in the package.
folder_of() {
    dirname "$(find "$root" -name "$1" | head -n 1)"
}

# Gets packages in this way, and a program out of them.
unpack() {
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    # What another way has left is of another distribution.
    rm -rf "$root" "$directory/packages"
    mkdir -p "$directory/packages/partial"
    "$1" || return 1
    for file in "$directory"/packages/*.deb; do
        dpkg -x "$file" "$root" || return 1
    done
    rm -rf "$directory/packages"
    [ -x "$root/$inside" ] || return 1
    libraries=$(find "$root" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d : -)
    {
        echo '#!/bin/sh'
        echo "export LD_LIBRARY_PATH='$libraries'"
        [ "$package" != valgrind ] || echo "export VALGRIND_LIB='$(folder_of 'callgrind-*-linux')'"
        [ "$package" != chromium ] || echo "export FONTCONFIG_FILE='$directory/fonts.conf'"
        echo "exec '$root/$inside' \"\$@\""
    } >"$program"
    chmod +x "$program"
    echo "<fontconfig><dir>/usr/share/fonts</dir><dir>$root/usr/share/fonts</dir><cachedir>$directory/fonts</cachedir></fontconfig>" \
        >"$directory/fonts.conf"
}

if ! works "$program"; then
    echo "program.sh: no $package on PATH; unpacking the distribution's package under $directory" >&2
    unpack from_distribution || unpack from_debian || echo "program.sh: that did not work" >&2
fi
if works "$program"; then
    echo "$program"
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "program.sh: installing $package" >&2
    # RUNLEVEL 1 keeps a package from starting a service.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$package" >&2 || true
    from_path
fi
echo "program.sh: no $package: install one (Debian, Ubuntu: apt-get install $package)" >&2
exit 1
