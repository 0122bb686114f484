#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs shellcheck, which tests/lint runs over the shell scripts.
set -eu

command -v shellcheck >/dev/null && exit 0
[ "$(id -u)" = 0 ] || { echo "shellcheck: must run as root" >&2; exit 1; }
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y shellcheck >/dev/null
