#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A Rust that can build the file-system tests: the one in PATH if it is new enough, else Debian's. Debian 12 keeps a new
# compiler for its browsers (cargo-web); Debian 13's own will do.
set -eu

needs=1.85

new_enough() {
    have=$(cargo --version 2>/dev/null | cut -d' ' -f2) && [ -n "$have" ] && dpkg --compare-versions "$have" ge $needs
}

new_enough && exit 0
[ "$(id -u)" = 0 ] || { echo "rust: must run as root" >&2; exit 1; }
apt-get -qq update
candidate=$(apt-cache policy cargo-web | sed -n 's/ *Candidate: //p')
package=cargo
if [ -n "$candidate" ] && [ "$candidate" != "(none)" ]; then
    package="cargo-web rustc-web"
fi
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y $package >/dev/null
new_enough || { echo "rust: Debian's $(cargo --version) is older than $needs" >&2; exit 1; }
