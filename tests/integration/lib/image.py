# SPDX-License-Identifier: Apache-2.0
"""The directory in which deploy/image/build works without an engine."""

import contextlib
import fcntl

from paths import CACHE, TOP

WORK = TOP / "build-image"


@contextlib.contextmanager
def cross_build():
    """For one test at a time, with the packages of arm64 that the tests have."""
    WORK.mkdir(exist_ok=True)
    with open(WORK / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (WORK / "arm64.sysroot").exists():
            (WORK / "arm64.sysroot").symlink_to(CACHE / "arm64")
        yield WORK
