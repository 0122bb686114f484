# SPDX-License-Identifier: Apache-2.0
"""Volumes of a pool that other files have filled to the last block can be unmounted and deleted: only that frees their space."""
import json
import os

import grpc
import pytest

from integration.lib.buckets import contents
from integration.lib.disk import Disk, fill

from .driver import MIB, Driver, Mode, capability, delete_until, wait_for
from .release_test import create, give_back

SHARED = capability(Mode.SINGLE_NODE_MULTI_WRITER)


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "disk", "400M", "xfs")
    yield made
    made.unmount()


def fill_with_files(folder):
    """Until neither a byte nor a file fits."""
    folder.mkdir()
    fill(folder / "large")
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
        fill_with_files(disk.path / "others")
        for pod in [*publish_until_refused(driver, volume), "pod"]:
            driver.unpublish(volume, pod)
        driver.unstage(volume)
        assert not os.path.ismount(driver.staging(volume))
        driver.delete(volume)
        os.unlink(disk.path / "others/large")
        wait_for(lambda: os.statvfs(disk.path).f_bavail * os.statvfs(disk.path).f_frsize > 64 * MIB)  # XFS frees it later
        again = driver.client.create("w", size=32 * MIB, access=access).volume_id
        driver.stage(again)
        (driver.publish(again) / "file").write_text("words")
        driver.unpublish(again)
        driver.unstage(again)
        driver.delete(again)
    finally:
        driver.end()


@pytest.mark.parametrize("has_reserve", [True, False])
def test_export_from_a_full_pool_needs_its_reserve_only(disk, tmp_path, has_reserve):
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    driver = Driver(disk.path)
    try:
        driver.start()
        volume, target = create(driver, bucket)
        (target / "file").write_text("words")
        reserve = driver.folder_of(volume) / "export/reserve"
        assert reserve.stat().st_blocks * 512 == MIB
        if not has_reserve:
            reserve.unlink()
        fill_with_files(disk.path / "others")
        give_back(driver, volume)
        if not has_reserve:
            wait_for(lambda: "No space left on device" in driver.client.fails("DeleteVolume", volume_id=volume)[1])
            os.unlink(disk.path / "others/large")
        delete_until(driver, volume)
        assert contents(bucket) == {"file": b"words"}
    finally:
        driver.end()
