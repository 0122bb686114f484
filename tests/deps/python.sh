#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the Python that the tests run on: a venv at $CISTERN_CACHE/python with what python/requirements.txt pins. May be
# run again, and is quick when nothing changed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${CISTERN_CACHE:-/var/cache/cistern}
wanted=$here/python/requirements.txt
made_from=$cache/python/.requirements.txt

is_made() { cmp -s "$wanted" "$made_from" && [ -x "$cache/python/bin/pytest" ]; }

is_made && exit 0
mkdir -p "$cache"
exec 9>"$cache/.python.lock" # two that find it missing at once
flock 9
is_made && exit 0

if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "python: needs python3-venv" >&2; exit 1; }
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y python3 python3-venv >/dev/null
fi
[ -x "$cache/python/bin/python" ] || python3 -m venv "$cache/python"
"$cache/python/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted"
cp "$wanted" "$made_from"
