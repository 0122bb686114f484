#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages of the build on Debian 12 or 13, as root. A second run is quick.
#
# libfuse must support passthrough (3.17). If the system has an older one, that of the next Debian release is built from
# its source as a static library in $CISTERN_DEPS. CMakeLists.txt searches there.
set -eu

case ${1:-} in
-h | --help)
    sed -n '3,/^set/{/^set/d; s/^# \{0,1\}//; p}' "$0"
    exit
    ;;
esac

deps=${CISTERN_DEPS:-/opt/cistern-deps}
fuse_needs=3.17
packages="build-essential ca-certificates ccache cmake file ninja-build pkg-config git
    libcap-dev libcmocka-dev libcurl4-openssl-dev libgrpc-dev libisal-dev libjansson-dev
    libmicrohttpd-dev libprotobuf-c-dev libprotobuf-dev libssl-dev liburing-dev libxml2-dev libyaml-dev protobuf-c-compiler
    protobuf-compiler xfslibs-dev xfsprogs"

[ "$(id -u)" = 0 ] || { echo "build-deps: must run as root" >&2; exit 1; }

installed() {
    for p in "$@"; do
        case $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null) in
        *" installed") ;;
        *) return 1 ;;
        esac
    done
}

apt_install() {
    installed "$@" && return 0
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    # Another apt-get may be running, for example that of a machine's first boot.
    apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends -y "$@" >/dev/null
}

system_fuse_version() {
    apt-cache policy libfuse3-dev | sed -n 's/ *Candidate: \([0-9.]*\).*/\1/p'
}

# The machine's own source of packages, asked for sources of Debian 13 and for nothing else. Signatures are checked.
fetch_fuse_source() {
    lists=$1/lists.sources
    mkdir -p "$1/state/partial" "$1/src"
    entry=$(grep -hl 'Suites:.*bookworm' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
    if [ -n "$entry" ]; then
        uri=$(sed -n 's/^URIs: *//p' "$entry" | head -n 1)
        key=$(sed -n 's/^Signed-By: *//p' "$entry" | head -n 1)
    else
        uri=$(sed -n 's/^deb \(\[[^]]*\] *\)\?\([^ ]*\) bookworm main.*/\2/p' /etc/apt/sources.list | head -n 1)
        key=/usr/share/keyrings/debian-archive-keyring.gpg
    fi
    [ -n "$uri" ] || { echo "build-deps: cannot find the machine's package source" >&2; exit 1; }
    printf 'Types: deb-src\nURIs: %s\nSuites: trixie\nComponents: main\nSigned-By: %s\n' "$uri" "$key" >"$lists"
    set -- "$1" -qq -o Dir::Etc::sourcelist="$lists" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$1/state" \
        -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false
    work=$1
    shift
    apt-get "$@" update
    (cd "$work/src" && apt-get "$@" source --download-only fuse3)
}

build_fuse() {
    apt_install dpkg-dev meson ninja-build libudev-dev
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    fetch_fuse_source "$work"
    (cd "$work/src" && dpkg-source --no-check -x fuse3_*.dsc tree >/dev/null)
    cd "$work/src/tree"
    if ! meson setup build --prefix="$deps" --libdir=lib --default-library=static --buildtype=release \
        -Dexamples=false -Dtests=false -Dutils=false -Duseroot=false >"$work/log" 2>&1 ||
        ! ninja -C build install >>"$work/log" 2>&1; then
        cat "$work/log" >&2
        exit 1
    fi
}

# shellcheck disable=SC2086 # a list of words
apt_install $packages

have=$(system_fuse_version)
if dpkg --compare-versions "${have:-0}" ge "$fuse_needs"; then
    apt_install libfuse3-dev
elif ! PKG_CONFIG_PATH=$deps/lib/pkgconfig pkg-config --atleast-version=$fuse_needs fuse3; then
    (build_fuse)
fi
