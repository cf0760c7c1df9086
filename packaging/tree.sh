#!/bin/sh
# Places a build below a prefix, or takes it away again; nothing else is touched:
#   packaging/tree.sh install target/release PREFIX [DESTDIR]
#   packaging/tree.sh uninstall target/release PREFIX [DESTDIR]
# DESTDIR is put in front of every path and is written into no file. The command
# finds the library from where it lies itself, so the tree may be moved as a whole.
set -eu
# Whoever installs it, all may use it.
umask 022
usage="usage: packaging/tree.sh install|uninstall target/release PREFIX [DESTDIR]"
what=${1:?$usage}
release=${2:?$usage}
prefix=${3:?$usage}
root=${4-}$prefix
[ $# -le 4 ] || { echo "$usage" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
# Debug information stays in the build; the command keeps the names of its functions.
strip=${STRIP:-strip --strip-debug}

case $prefix in
*[\ :\$%\&\|\\\'\"]*)
    printf 'PREFIX=%s: a path with a space, a colon or one of $%%&|\\'\''" cannot be written in LD_PRELOAD or in a unit\n' "$prefix" >&2
    exit 2 ;;
/*) ;;
*)
    echo "PREFIX=$prefix is not an absolute path" >&2
    exit 2 ;;
esac

bash_completion=$root/share/bash-completion/completions/memcuda
zsh_completion=$root/share/zsh/site-functions/_memcuda
fish_completion=$root/share/fish/vendor_completions.d/memcuda.fish

# A running program keeps the old file whole: the new one takes its name only
# once it is complete.
place() {
    mode=$1 from=$2 to=$3
    mkdir -p "$(dirname "$to")"
    cp "$from" "$to.new"
    chmod "$mode" "$to.new"
    [ "$mode" = 644 ] || $strip "$to.new"
    mv -f "$to.new" "$to"
}

written() {
    mkdir -p "$(dirname "$1")"
    cat >"$1"
    chmod 644 "$1"
}

install_tree() {
    for file in memcuda libmemcuda.so NOTICES; do
        if [ ! -f "$release/$file" ]; then
            echo "no $release/$file: make build" >&2
            exit 1
        fi
    done
    command=$release/memcuda
    place 755 "$command" "$root/bin/memcuda"
    place 755 "$release/libmemcuda.so" "$root/lib/memcuda/libmemcuda.so"
    place 644 "$here/include/memcuda.h" "$root/include/memcuda.h"
    for licence in "$here/LICENSE-MIT" "$here/LICENSE-APACHE" "$release/NOTICES"; do
        place 644 "$licence" "$root/share/doc/memcuda/${licence##*/}"
    done
    "$command" man "$root/share/man/man1"
    chmod 644 "$root/share/man/man1"/memcuda*.1
    "$command" completions bash | written "$bash_completion"
    "$command" completions zsh | written "$zsh_completion"
    "$command" completions fish | written "$fish_completion"
    # For the user and for the host, which has more to shut off; neither is switched on.
    unit=$here/examples/keeper/memcuda-keeper.service
    sed "s|/usr/local/bin/|$prefix/bin/|" "$unit" | written "$root/lib/systemd/user/memcuda-keeper.service"
    sed "s|/usr/local/bin/|$prefix/bin/|; s/^#\(PrivateTmp\|Protect[A-Z][a-z]*\)=/\1=/" "$unit" |
        written "$root/lib/systemd/system/memcuda-keeper.service"
}

uninstall_tree() {
    rm -f "$root/bin/memcuda" "$root/include/memcuda.h" "$root/share/man/man1/memcuda.1" \
        "$root/share/man/man1"/memcuda-*.1 "$bash_completion" "$zsh_completion" "$fish_completion" \
        "$root/lib/systemd/user/memcuda-keeper.service" "$root/lib/systemd/system/memcuda-keeper.service"
    rm -rf "$root/lib/memcuda" "$root/share/doc/memcuda"
}

case $what in
install) install_tree ;;
uninstall) uninstall_tree ;;
*)
    echo "$usage" >&2
    exit 2 ;;
esac
