#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpacks Debian's Prometheus and its promtool into $CISTERN_CACHE/prometheus. Installed, the package would start a service.
set -eu

root=${CISTERN_CACHE:-/var/cache/cistern}/prometheus
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

[ "$(cat "$root/.made" 2>/dev/null)" != "$suite" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
apt-get -qq update
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download prometheus)
dpkg-deb -x "$work"/prometheus_*.deb "$work/tree"
rm -rf "$root"
mkdir -p "$root/bin"
mv "$work/tree/usr/bin/prometheus" "$work/tree/usr/bin/promtool" "$root/bin/"
echo "$suite" >"$root/.made"
