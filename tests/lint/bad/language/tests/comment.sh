#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whoever needs it runs this.
