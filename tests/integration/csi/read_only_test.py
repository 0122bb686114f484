# SPDX-License-Identifier: Apache-2.0
"""A pool whose file system the kernel has made read-only, or whose disk has failed: no new volume is offered, pods can
end, and nothing is lost once it is repaired."""
import fcntl
import os
import struct
import subprocess
from pathlib import Path

import grpc
import pytest

from .absent_test import driver, stop_machine  # noqa: F401
from .driver import mounts, wait_for

EXT4_IOC_SHUTDOWN = 0x8004587D  # linux/fs/ext4/ext4.h; XFS has the same


def break_ext4(pool):
    """As an error of the disk does."""
    subprocess.run(["mount", "-o", "remount,errors=remount-ro", pool], check=True)
    device = subprocess.run(["findmnt", "-no", "SOURCE", pool], capture_output=True, text=True, check=True).stdout.strip()
    (Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error").write_text("a test")
    with pytest.raises(OSError, match="Read-only"):
        (pool / "probe").write_text("x")


def kill_ext4(pool):
    """As a disk that is gone: no file can be opened or written."""
    fd = os.open(pool, os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", 1))
    os.close(fd)
    with pytest.raises(OSError, match="Input/output"):
        (pool / "cistern.json").read_text()


def repair(driver):
    """After stop_machine(). A mount namespace that another process made may keep the broken file system alive for a moment,
    and mount(8) would take its device again."""
    image = driver.pool.with_name(f"{driver.pool.name}.img")
    wait_for(lambda: not subprocess.run(["losetup", "--associated", image], capture_output=True, check=True).stdout)
    subprocess.run(["e2fsck", "-fy", image], stdout=subprocess.DEVNULL, check=False)
    driver.mount()


def write_durably(path, text):
    with open(path, "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def test_read_only_pool_has_no_capacity(driver):  # noqa: F811
    assert driver.capacity() > 0
    break_ext4(driver.pool)

    def refused():
        try:
            return driver.capacity() == 0
        except grpc.RpcError as e:
            return "Read-only file system" in e.details() and "CIS1522" in e.details()

    wait_for(refused, 120)


@pytest.mark.parametrize("access", ["fuse", "bind"])
@pytest.mark.parametrize("break_pool", [break_ext4, kill_ext4])
def test_pods_of_a_broken_pool_end_and_their_files_are_there_after_a_repair(driver, break_pool, access):  # noqa: F811
    volume = driver.client.create("v", access=access).volume_id
    driver.stage(volume)
    write_durably(driver.publish(volume) / "file", "words")
    break_pool(driver.pool)
    driver.unpublish(volume)
    driver.unstage(volume)
    assert not [m for m in mounts() if m.startswith((str(driver.target(volume)), str(driver.staging(volume))))]
    driver.client.fails("DeleteVolume", volume_id=volume)
    stop_machine(driver)
    repair(driver)
    driver.start()
    driver.stage(volume)
    assert (driver.publish(volume) / "file").read_text() == "words"
    driver.unpublish(volume)
    driver.unstage(volume)
    driver.delete(volume)
