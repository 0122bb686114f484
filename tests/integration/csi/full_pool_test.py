# SPDX-License-Identifier: Apache-2.0
"""A pool that files of others have filled to the last block: its volumes can be given up, or no space would come back."""
import errno
import os

import pytest

from integration.lib.disk import Disk

from .driver import MIB, Driver


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "disk", "400M", "xfs")
    yield made
    made.unmount()


def fill(folder):
    """Until neither a byte nor a file fits."""
    folder.mkdir()
    with open(folder / "large", "wb", buffering=0) as file:
        for size in (MIB, 4096, 1):
            with pytest.raises(OSError) as full:
                while True:
                    file.write(bytes(size))
            assert full.value.errno == errno.ENOSPC
    with pytest.raises(OSError):
        for n in range(100_000):
            (folder / f"small-{n}").write_bytes(bytes(4000))


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_volume_of_a_full_pool_is_unmounted_and_deleted(disk, access):
    driver = Driver(disk.path)
    try:
        driver.start()
        volume = driver.client.create("v", size=64 * MIB, access=access).volume_id
        driver.stage(volume)
        (driver.publish(volume) / "file").write_text("words")
        fill(disk.path / "others")
        driver.unpublish(volume)
        driver.unstage(volume)
        assert not os.path.ismount(driver.staging(volume))
        driver.delete(volume)
        os.unlink(disk.path / "others/large")
        again = driver.client.create("w", size=64 * MIB, access=access).volume_id
        driver.stage(again)
        (driver.publish(again) / "file").write_text("words")
        driver.unpublish(again)
        driver.unstage(again)
        driver.delete(again)
    finally:
        driver.end()
