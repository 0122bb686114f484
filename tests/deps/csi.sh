#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds, from the pinned modules beside this script, what CSI's tests hold us to, into $CISTERN_CACHE/bin: csi-sanity,
# and csi-spec-1.12, csi-spec-1.13 and kubelet-spec, which print the published descriptors. May be run again: what was built from the
# same pins is kept.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${CISTERN_CACHE:-/var/cache/cistern}

command -v go >/dev/null || { echo "csi: needs Go 1.25 or later in PATH" >&2; exit 1; }
mkdir -p "$cache/bin"
exec 9>"$cache/.csi.lock" # two that find it missing at once
flock 9

# build NAME FOLDER MODFILE PACKAGE
build() {
    made_from=$cache/bin/.$1.pins
    pins=$here/$2/${3%.mod}.sum
    cmp -s "$pins" "$made_from" && [ -x "$cache/bin/$1" ] && return 0
    work=$(mktemp -d)
    cp "$here/$2"/* "$work/"
    (cd "$work" && CGO_ENABLED=0 nice go build -mod=mod -modfile="$3" -trimpath -ldflags='-s -w' -o "$work/$1" "$4") ||
        exit 1
    cmp "$pins" "$work/${3%.mod}.sum" || { echo "csi: $1 needs modules that are not pinned" >&2; exit 1; }
    mv "$work/$1" "$cache/bin/$1"
    cp "$pins" "$made_from"
    rm -rf "$work"
}

build csi-sanity csi-sanity go.mod github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity
build csi-spec-1.12 csi-spec v1.12.mod .
build csi-spec-1.13 csi-spec go.mod .
build kubelet-spec kubelet-spec go.mod .
