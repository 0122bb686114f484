# SPDX-License-Identifier: Apache-2.0
"""Where things are: the sources, the build that is tested, and what tests/deps installed."""

import os
import pathlib

TOP = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("CISTERN_BUILD", TOP / "build")).resolve()
CACHE = pathlib.Path(os.environ.get("CISTERN_CACHE", "/var/cache/cistern"))
CISTERN = BUILD / "bin/cistern"


def files_below(top):
    """Every file and link below `top`. Directories may vanish during the walk, for which Path.rglob raises an error."""
    return [pathlib.Path(directory, name) for directory, _, names in os.walk(top) for name in names]
