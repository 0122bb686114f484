# SPDX-License-Identifier: Apache-2.0
"""A pool whose disk is not mounted: nothing takes its place, its volumes are held, and it is served when it is back."""
import json
import subprocess

import grpc
import pytest

from integration.lib.disk import Disk
from paths import BUILD

from .driver import MIB, Driver, csi, end_all, mounts, wait_for

Code = grpc.StatusCode
EXPORT = {"export.uri": "s3://nowhere/runs/"}


class OnDisk(Driver):
    """Its pool is a disk of its own."""

    def __init__(self, folder, **more):
        super().__init__(folder, **more)
        self.pool = self.pools["default"]
        self.pool.rmdir()
        self.disk = Disk(self.pool, "200M")

    def unmount(self):
        self.disk.unmount()

    def mount(self):
        subprocess.run(["mount", "-o", "loop,noatime", self.pool.with_name(f"{self.pool.name}.img"), self.pool], check=True)

    def wipe(self):
        self.unmount()
        subprocess.run(["mkfs.ext4", "-q", "-F", self.pool.with_name(f"{self.pool.name}.img")], check=True)
        self.mount()

    def uuid(self):
        return self.identity()["uuid"]

    def identity(self):
        return json.loads((self.pool / "cistern.json").read_text())

    def capacity(self):
        return self.client.call("GetCapacity").available_capacity

    def clean_up(self):
        self.pools["default"] = self.pool
        super().clean_up()


@pytest.fixture
def driver(folder):
    d = OnDisk(folder)
    try:
        yield d.start()
    finally:
        d.end()


def written(driver, name="pvc-1", **parameters):
    volume = driver.client.create(name, **parameters).volume_id
    driver.stage(volume)
    (driver.publish(volume) / "own").write_text("mine")
    driver.unpublish(volume)
    driver.unstage(volume)
    return volume


def stop_machine(driver):
    """The machine restarts: no process lives, and nothing is mounted, not even a volume's own disk."""
    assert driver.stop() == 0
    end_all(f"{driver.folder}/")
    for path in [*driver.pool.glob("volumes/*/data"), driver.pool]:
        wait_for(lambda at=str(path): at not in mounts() or subprocess.run(["umount", at], stderr=subprocess.DEVNULL).returncode == 0)


def test_a_pool_whose_disk_is_not_mounted_is_held_and_served_again_when_it_is(driver):
    volume, uuid = written(driver, **EXPORT), driver.uuid()
    stop_machine(driver)
    driver.start()
    for method, fields in (("DeleteVolume", {}), ("ControllerGetVolume", {}),
                           ("NodeStageVolume", {"staging_target_path": str(driver.staging(volume)),
                                                "volume_capability": csi.VolumeCapability(
                                                    mount={}, access_mode={"mode": "SINGLE_NODE_WRITER"})})):
        code, text = driver.client.fails(method, volume_id=volume, **fields)
        assert code == Code.FAILED_PRECONDITION and "CIS3001" in text and uuid in text, (method, text)
    code, text = driver.client.fails("CreateVolume", name="pvc-2", volume_capabilities=[csi.VolumeCapability(
        mount={}, access_mode={"mode": "SINGLE_NODE_WRITER"})], capacity_range={"required_bytes": 32 * MIB})
    assert code == Code.FAILED_PRECONDITION and "CIS2045" in text and uuid in text, text
    assert driver.capacity() == 0
    assert not driver.client.call("ListVolumes").entries
    assert not list(driver.pool.iterdir()), "the bare directory stays as it is"
    driver.mount()
    wait_for(lambda: driver.capacity() > 0)
    assert driver.uuid() == uuid
    wait_for(lambda: driver.is_staged(volume))
    assert (driver.publish(volume) / "own").read_text() == "mine"


def test_wiped_disk_gets_a_new_pool_only_after_the_old_one_is_given_up_by_name(driver):
    volume, uuid = written(driver, **EXPORT), driver.uuid()
    stop_machine(driver)
    driver.mount()
    driver.wipe()
    driver.flags = ["--forget-pool=0123456789ab"]
    driver.start()
    assert driver.capacity() == 0 and f"pool {uuid} belongs in '{driver.pool}'" in driver.log_text()
    assert [p.name for p in driver.pool.iterdir()] == ["lost+found"]
    driver.stop()
    driver.flags = [f"--forget-pool={uuid}"]
    driver.start()
    assert driver.capacity() > 0 and driver.uuid() != uuid
    driver.stop()
    driver.flags = []
    driver.start()
    driver.delete(volume)  # given up once and for all, by the new pool's own record
    assert {"uuid": uuid, "givenUp": True} in driver.identity()["replaces"]


def test_pool_other_than_the_recorded_one_is_not_served(driver):
    uuid = driver.uuid()
    stop_machine(driver)
    records = [p for p in driver.state.iterdir() if p.name.startswith("pool-")]
    kept = {p: p.read_text() for p in records}
    for p in records:
        p.unlink()
    driver.start()  # what an earlier version made in the bare directory
    other = driver.uuid()
    driver.stop()
    for p, text in kept.items():
        p.write_text(text)
    driver.start()
    assert driver.capacity() == 0 and f"is {other}, and {uuid} is expected" in driver.log_text()
    driver.mount()
    wait_for(lambda: driver.capacity() > 0)
    assert driver.uuid() == uuid


def test_a_record_that_cannot_be_read_permits_nothing(driver):
    stop_machine(driver)
    for p in driver.state.glob("pool-*"):
        p.write_text("{")
    driver.start()
    assert driver.capacity() == 0 and not list(driver.pool.iterdir())


def test_a_volume_of_a_pool_that_is_not_configured_any_more_is_held(folder):
    driver = Driver(folder, pools=("default", "fast"))
    try:
        driver.start()
        volume = written(driver, pool="fast", **EXPORT)
        driver.stop()
        fast = driver.pools.pop("fast")
        driver.start()
        code, text = driver.client.fails("DeleteVolume", volume_id=volume)
        assert code == Code.FAILED_PRECONDITION and volume[3:15] in text and "pool 'default' is " in text, text
        driver.stop()
        driver.pools["fast"] = fast
        driver.start()
        assert driver.client.call("ControllerGetVolume", volume_id=volume).volume.volume_id == volume
    finally:
        driver.end()


def test_a_directory_that_does_not_exist_is_a_pool_that_is_not_here_yet(folder):
    driver = Driver(folder)
    try:
        driver.pools["default"].rmdir()
        driver.start()
        assert driver.client.call("GetCapacity").available_capacity == 0
        driver.pools["default"].mkdir()
        wait_for(lambda: driver.client.call("GetCapacity").available_capacity > 0)
    finally:
        driver.end()


def test_a_pool_that_requires_a_mount_is_made_on_its_own_disk_only(folder):
    driver = OnDisk(folder)
    driver.pools["default"] = f"{driver.pool},require-mount"
    try:
        driver.unmount()
        driver.start()
        wait_for(lambda: "CIS2043" in driver.log_text())
        said = next(line for line in driver.log_text().splitlines() if "CIS2043" in line)
        assert str(driver.pool) in said and "mount the pool's disk there, or set requireMount: false" in said, said
        assert driver.capacity() == 0 and not list(driver.pool.iterdir())
        driver.mount()
        wait_for(lambda: driver.capacity() > 0)
    finally:
        driver.end()


def test_a_pool_that_has_its_identity_needs_no_mount(folder):
    driver = Driver(folder)
    try:
        driver.start()
        driver.stop()
        plain = driver.pools["default"]
        driver.pools["default"] = f"{plain},require-mount"
        driver.start()
        assert driver.client.call("GetCapacity").available_capacity > 0
        driver.pools["default"] = plain
    finally:
        driver.end()


def test_ephemeral_pool_on_a_blank_disk_is_created_again_and_lost_volumes_are_reported(folder):
    driver = OnDisk(folder)
    driver.pools["default"] = f"{driver.pool},ephemeral"
    try:
        driver.start()
        volume, uuid = written(driver, **EXPORT), driver.uuid()
        stop_machine(driver)
        driver.start()
        assert driver.capacity() == 0 and not list(driver.pool.iterdir()), "a bare directory is no blank disk"
        driver.stop()
        driver.mount()
        driver.wipe()
        driver.start()
        assert driver.capacity() > 0 and driver.identity()["replaces"] == [{"uuid": uuid, "givenUp": False}]
        assert driver.client.fails("DeleteVolume", volume_id=volume)[0] == Code.FAILED_PRECONDITION, "nobody gave it up"
    finally:
        driver.end()


@pytest.mark.parametrize("pool,why", [("/p,requiremount", "'requiremount' is not an option"), ("p", "is not DIR"),
                                      ("fast=,ephemeral", "is not DIR"), ("/p,", "is not an option")])
def test_an_option_that_means_nothing_is_refused(pool, why):
    done = subprocess.run([BUILD / "bin/cisternd", f"--pool={pool}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 10 and why in done.stderr, done
