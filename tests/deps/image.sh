#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# crane: makes images without a container engine, and is the registry that the tests push to.
set -eu

exec "$(dirname "$0")/go-program" crane github.com/google/go-containerregistry/cmd/crane
