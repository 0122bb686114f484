#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs s3rver, an S3 server that returns no checksums, into $CISTERN_CACHE/s3rver from s3rver/package-lock.json. May
# be run again; does nothing when the lock file is unchanged.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${CISTERN_CACHE:-/var/cache/cistern}
wanted=$here/s3rver/package-lock.json
made_from=$cache/s3rver/.package-lock.json

is_made() { cmp -s "$wanted" "$made_from"; }

is_made && exit 0
mkdir -p "$cache/s3rver"
exec 9>"$cache/.s3rver.lock" # two that find it missing at once
flock 9
is_made && exit 0

if ! command -v npm >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "s3rver: needs nodejs and npm" >&2; exit 1; }
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y nodejs npm >/dev/null
fi
cp "$here/s3rver/package.json" "$wanted" "$cache/s3rver/"
npm --prefix "$cache/s3rver" ci --silent --ignore-scripts --no-audit --no-fund
cp "$wanted" "$made_from"
