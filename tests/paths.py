# SPDX-License-Identifier: Apache-2.0
"""Where things are: the sources, the build that is tested, and what tests/deps installed."""

import os
import pathlib

TOP = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("CISTERN_BUILD", TOP / "build")).resolve()
CACHE = pathlib.Path(os.environ.get("CISTERN_CACHE", "/var/cache/cistern"))
CISTERN = BUILD / "bin/cistern"
