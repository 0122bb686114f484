#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A directory with a blank in its name is two arguments.
rm -rf $1
