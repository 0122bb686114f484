#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang with its sanitizers, for the fuzzers.
set -eu

echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n ? 0 : 0; }' |
    clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null && exit 0
[ "$(id -u)" = 0 ] || { echo "clang: must run as root" >&2; exit 1; }
apt-get -qq update
version=$(apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\).*/\1/p' | head -n 1)
DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y \
    clang "libclang-rt-$version-dev" llvm >/dev/null
