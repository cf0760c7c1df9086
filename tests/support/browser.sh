#!/bin/sh
# Prints the path of a Chromium: from PATH; else from the distribution's package,
# unpacked with the libraries it needs under DIRECTORY; else, as root, installed.
# Says on standard error what it does.
set -eu
directory=${1:?usage: browser.sh DIRECTORY}

for name in chromium chromium-browser google-chrome google-chrome-stable; do
    # Some distributions have a command of that name that only says what to install.
    if "$name" --version >/dev/null 2>&1; then
        command -v "$name"
        exit 0
    fi
done
mkdir -p "$directory/packages/partial"
directory=$(cd "$directory" && pwd)
browser=$directory/chromium

works() {
    [ -x "$browser" ] && "$browser" --version >/dev/null 2>&1
}

# The package, and of what it needs what is not installed here.
unpack() {
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    if [ -z "$(apt-cache policy chromium 2>/dev/null)" ] && [ "$(id -u)" = 0 ]; then
        apt-get update >&2 || return 1
    fi
    apt-get -o "Dir::Cache::archives=$directory/packages" -o Debug::NoLocking=1 -o APT::Sandbox::User= \
        install --download-only --no-install-recommends -y chromium >&2 || return 1
    for file in "$directory"/packages/*.deb; do
        [ -f "$file" ] && dpkg -x "$file" "$directory/root"
    done
    [ -x "$directory/root/usr/lib/chromium/chromium" ] || return 1
    libraries=$(find "$directory/root" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d : -)
    cat >"$browser" <<WRAPPER
#!/bin/sh
LD_LIBRARY_PATH='$libraries' exec '$directory/root/usr/lib/chromium/chromium' "\$@"
WRAPPER
    chmod +x "$browser"
}

if ! works; then
    echo "browser.sh: no Chromium on PATH; unpacking the distribution's package under $directory" >&2
    (unpack) || echo "browser.sh: that did not work" >&2
fi
if works; then
    rm -rf "$directory/packages"
    echo "$browser"
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "browser.sh: installing chromium" >&2
    apt-get update >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium >&2
    command -v chromium && exit 0
fi
echo "browser.sh: no Chromium: install one (Debian: apt-get install chromium)" >&2
exit 1
