# SPDX-License-Identifier: Apache-2.0
import tempfile
from pathlib import Path

import pytest

from .driver import Driver


@pytest.fixture
def folder():
    """Short, since a socket's path may have a hundred bytes; on a real disk, since pools are."""
    with tempfile.TemporaryDirectory(prefix="cistern-csi-", dir="/var/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture
def driver(folder):
    d = Driver(folder)
    try:
        yield d.start()
    finally:
        d.end()
