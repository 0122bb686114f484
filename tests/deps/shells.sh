#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the shells whose completions are tested.
set -eu

if [ "$(dpkg-query -W -f 'x' fish zsh 2>/dev/null)" != xx ]; then
    [ "$(id -u)" = 0 ] || { echo "shells: must run as root" >&2; exit 1; }
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y fish zsh >/dev/null
fi
