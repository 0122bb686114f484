#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the object stores that the tests talk to, and installs clients that are not ours to see what is in them.
set -eu

if ! command -v curl >/dev/null; then
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y curl >/dev/null
fi

here=$(dirname "$0")
program=$here/go-program

"$program" versitygw github.com/versity/versitygw/cmd/versitygw
"$program" fake-gcs-server github.com/fsouza/fake-gcs-server
"$program" minio github.com/minio/minio
"$program" gofakes3 github.com/johannesboyne/gofakes3/cmd/gofakes3

"$program" s5cmd github.com/peak/s5cmd/v2
"$program" rclone .
# awscli and Google's client. They pin other versions of packages that the tests import.
"$here/python-environment" clients
