#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the peers that tests/bench measures us against, from the pinned modules beside this script, into
# $CISTERN_CACHE/bin. May be run again: a program that was built from the same go.mod is kept.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${CISTERN_CACHE:-/var/cache/cistern}

command -v go >/dev/null || { echo "peers: needs Go 1.24 or later in PATH" >&2; exit 1; }

# build NAME PACKAGE
build() {
    made_from=$cache/bin/.$1.go.mod
    cmp -s "$here/$1/go.mod" "$made_from" && [ -x "$cache/bin/$1" ] && return 0
    work=$(mktemp -d)
    cp "$here/$1/go.mod" "$work/"
    echo "peers: building $1; this takes minutes, once"
    (cd "$work" && CGO_ENABLED=0 nice go build -mod=mod -trimpath -ldflags='-s -w' -o "$work/$1" "$2") || exit 1
    mkdir -p "$cache/bin"
    mv "$work/$1" "$cache/bin/$1"
    cp "$here/$1/go.mod" "$made_from"
    rm -rf "$work"
}

build s5cmd github.com/peak/s5cmd/v2
