#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A Go that can build the servers that tests talk to: the one in PATH if it is new enough, else Debian 13's packages,
# unpacked below $CISTERN_CACHE/go (Debian 12 has 1.19, which is too old even to fetch a newer one). Whoever needs it
# has $CISTERN_CACHE/go/bin in PATH, as tests/run does. A module that asks for a newer Go gets it from the module proxy
# by itself (GOTOOLCHAIN=auto).
set -eu

needs=1.24
cache=${CISTERN_CACHE:-/var/cache/cistern}

new_enough() {
    have=$("$1" env GOVERSION 2>/dev/null | sed 's/^go//') && [ -n "$have" ] && dpkg --compare-versions "$have" ge $needs
}

new_enough go && exit 0
new_enough "$cache/go/bin/go" && exit 0

[ "$(id -u)" = 0 ] || { echo "go: must run as root" >&2; exit 1; }

# The machine's own source of packages, asked for Debian 13 in lists of our own. Signatures are checked.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
entry=$(grep -hlE 'Suites:.*(bookworm|trixie)' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
if [ -n "$entry" ]; then
    uri=$(sed -n 's/^URIs: *//p' "$entry" | head -n 1)
    key=$(sed -n 's/^Signed-By: *//p' "$entry" | head -n 1)
else
    uri=$(sed -n 's/^deb \(\[[^]]*\] *\)\?\([^ ]*\) \(bookworm\|trixie\) main.*/\2/p' /etc/apt/sources.list | head -n 1)
    key=/usr/share/keyrings/debian-archive-keyring.gpg
fi
[ -n "$uri" ] || { echo "go: cannot find the machine's package source" >&2; exit 1; }
mkdir -p "$work/state/partial"
printf 'Types: deb\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' "$uri" "$key" >"$work/trixie.sources"
set -- -qq -o Dir::Etc::sourcelist="$work/trixie.sources" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$work/state" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root
apt-get "$@" update
(cd "$work" && apt-get "$@" download golang-$needs-go golang-$needs-src)
for deb in "$work"/*.deb; do
    dpkg-deb -x "$deb" "$work/tree"
done

# The two packages make one GOROOT by links between each other, absolute ones among them: it is put together here.
rm -rf "$cache/go"
mkdir -p "$cache/go"
cp -a "$work/tree/usr/lib/go-$needs/." "$cache/go/"
for part in api misc src pkg/include; do
    if [ -L "$cache/go/$part" ] || [ ! -e "$cache/go/$part" ]; then
        rm -f "$cache/go/$part"
        [ ! -e "$work/tree/usr/share/go-$needs/$part" ] || cp -a "$work/tree/usr/share/go-$needs/$part" "$cache/go/$part"
    fi
done
new_enough "$cache/go/bin/go" || { echo "go: what was unpacked does not run" >&2; exit 1; }
