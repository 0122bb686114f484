#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the Python that the tests run on.
set -eu

"$(dirname "$0")/python-environment" python
