# SPDX-License-Identifier: Apache-2.0
"""A pool whose file system the kernel has made read-only: no new volume is offered."""
import subprocess
from pathlib import Path

import grpc
import pytest

from .absent_test import OnDisk
from .driver import wait_for



def break_ext4(pool):
    """As an error of the disk does."""
    subprocess.run(["mount", "-o", "remount,errors=remount-ro", pool], check=True)
    device = subprocess.run(["findmnt", "-no", "SOURCE", pool], capture_output=True, text=True, check=True).stdout.strip()
    (Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error").write_text("a test")
    with pytest.raises(OSError, match="Read-only"):
        (pool / "probe").write_text("x")


@pytest.fixture
def driver(folder):
    d = OnDisk(folder)
    try:
        yield d.start()
    finally:
        d.end()


def test_read_only_pool_has_no_capacity(driver):
    assert driver.capacity() > 0
    break_ext4(driver.pool)

    def refused():
        try:
            return driver.capacity() == 0
        except grpc.RpcError as e:
            return "Read-only file system" in e.details() and "CIS1522" in e.details()

    wait_for(refused, 120)
