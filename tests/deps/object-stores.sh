#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the object stores that the tests talk to, and a client that is not ours to see what is in them.
set -eu

program=$(dirname "$0")/go-program

"$program" versitygw github.com/versity/versitygw/cmd/versitygw
"$program" fake-gcs-server github.com/fsouza/fake-gcs-server
"$program" minio github.com/minio/minio
"$program" gofakes3 github.com/johannesboyne/gofakes3/cmd/gofakes3
"$program" s5cmd github.com/peak/s5cmd/v2
