# SPDX-License-Identifier: Apache-2.0
"""Volumes of a pool that other files have filled to the last block can be unmounted and deleted: only that frees their space."""
import errno
import json
import os

import grpc
import pytest

from integration.lib.disk import Disk

from .driver import MIB, Driver, Mode, capability

SHARED = capability(Mode.SINGLE_NODE_MULTI_WRITER)


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


PODS = [f"pod-{n:02d}-{'x' * 100}" for n in range(60)]


def publish_until_refused(driver, volume):
    """The names of its pods. The record of the volume grows by each, until it needs another block of the disk."""
    for n, pod in enumerate(PODS):
        try:
            driver.publish(volume, pod, SHARED)
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "mounts.json" in e.details(), e
            json.loads((driver.folder_of(volume) / "mounts.json").read_text())
            return PODS[:n]
    pytest.fail("the record of a volume grew on a full disk")


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_volume_of_a_full_pool_is_unmounted_and_deleted(disk, access):
    driver = Driver(disk.path)
    try:
        driver.start()
        volume = driver.client.create("v", size=64 * MIB, access=access, cap=SHARED).volume_id
        driver.stage(volume, SHARED)
        (driver.publish(volume, cap=SHARED) / "file").write_text("words")
        for pod in PODS:
            driver.target(volume, pod).mkdir(parents=True)
        fill(disk.path / "others")
        for pod in [*publish_until_refused(driver, volume), "pod"]:
            driver.unpublish(volume, pod)
        driver.unstage(volume)
        assert not os.path.ismount(driver.staging(volume))
        driver.delete(volume)
        os.unlink(disk.path / "others/large")
        again = driver.client.create("w", size=32 * MIB, access=access).volume_id
        driver.stage(again)
        (driver.publish(again) / "file").write_text("words")
        driver.unpublish(again)
        driver.unstage(again)
        driver.delete(again)
    finally:
        driver.end()
