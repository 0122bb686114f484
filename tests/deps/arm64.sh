#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What compiles for arm64, and runs the result: the cross compiler, the libraries ($CISTERN_CACHE/arm64) and
# QEMU. QEMU is the one of Debian 13: an older one has no openat2(2).
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${CISTERN_CACHE:-/var/cache/cistern}

if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "arm64: must run as root" >&2; exit 1; }
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y gcc-aarch64-linux-gnu >/dev/null
fi

if ! cmp -s "$top/deploy/build-deps.sh" "$cache/arm64/.made-from"; then
    rm -rf "$cache/arm64"
    "$top/deploy/image/sysroot" arm64 "$cache/arm64"
    cp "$top/deploy/build-deps.sh" "$cache/arm64/.made-from"
fi

if [ ! -x "$cache/bin/qemu-aarch64" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$top/deploy/image/sysroot" amd64 "$work/tree" qemu-user
    mkdir -p "$cache/bin"
    cp "$work/tree/usr/bin/qemu-aarch64" "$cache/bin/" # statically linked
fi
