#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The conformance suite and the exerciser that mounts are tested with, built from their crates with rust.sh's compiler.
set -eu

root=${CISTERN_CACHE:-/var/cache/cistern}/filesystem-tests

if [ "$(dpkg-query -W -f 'x' acl attr e2fsprogs libacl1-dev pkg-config 2>/dev/null)" != xxxxx ]; then
    [ "$(id -u)" = 0 ] || { echo "filesystem-tests: must run as root" >&2; exit 1; }
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y \
        acl attr e2fsprogs libacl1-dev pkg-config >/dev/null
fi

for crate in pjdfstest@0.2.2 fsx@0.3.2; do
    name=${crate%@*}
    [ "$("$root/bin/$name" --version 2>/dev/null)" = "$name ${crate#*@}" ] ||
        cargo install --quiet --locked --root "$root" "$crate"
done
