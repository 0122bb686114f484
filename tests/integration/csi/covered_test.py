# SPDX-License-Identifier: Apache-2.0
"""A mount covers a volume's files: covered files are neither exported nor deleted."""
import contextlib
import subprocess

import grpc
import pytest

from integration.lib.buckets import contents

from .driver import delete_until, wait_for
from .release_race_test import create, give_back, verdict

Code = grpc.StatusCode


@pytest.fixture
def bucket(folder):
    path = folder / "bucket" / "out"
    path.mkdir(parents=True)
    return path


@contextlib.contextmanager
def covered(path):
    subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("where", [".", "checkpoints"])
def test_an_export_does_not_take_what_is_mounted_over_a_volume_for_the_volume(driver, bucket, where):
    volume, target = create(driver, bucket)
    (target / "checkpoints").mkdir()
    (target / "checkpoints" / "early").write_text("1")
    (bucket / "checkpoints").mkdir()
    (bucket / "checkpoints" / "early").write_text("another's")
    give_back(driver, volume)
    wait_for(lambda: driver.client.fails("DeleteVolume", volume_id=volume)[0] == Code.FAILED_PRECONDITION)
    with covered(driver.folder_of(volume) / "data" / where):
        (bucket / "checkpoints" / "early").unlink()
        said = driver.folder_of(volume) / "export.log"
        wait_for(lambda: "CIS2011" in said.read_text() or verdict(driver, volume)["state"] == "done")
        assert verdict(driver, volume)["state"] == "failed"
        code, text = driver.client.fails("DeleteVolume", volume_id=volume)
        assert code == Code.FAILED_PRECONDITION and "CIS2011" in text, text
    delete_until(driver, volume)
    assert contents(bucket) == {"checkpoints/early": b"1"}


def test_a_pool_whose_volumes_are_hidden_is_not_here(driver, bucket):
    volume, target = create(driver, bucket)
    (target / "early").write_text("1")
    give_back(driver, volume)
    driver.stop()
    with covered(driver.pools["default"] / "volumes"):
        driver.start()
        code, text = driver.client.fails("DeleteVolume", volume_id=volume)
        assert code == Code.FAILED_PRECONDITION and "CIS3001" in text and "/volumes'" in text, text
    wait_for(lambda: driver.client.call("GetCapacity").available_capacity > 0)
    delete_until(driver, volume)
    assert contents(bucket) == {"early": b"1"}
