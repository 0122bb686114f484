#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds what CSI's tests hold us to: csi-sanity, and csi-spec-1.12, csi-spec-1.13 and kubelet-spec, which print the
# published descriptors.
set -eu

program=$(dirname "$0")/go-program

"$program" csi-sanity github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity
"$program" csi-spec-1.12 . csi-spec v1.12.mod
"$program" csi-spec-1.13 . csi-spec
"$program" kubelet-spec .
