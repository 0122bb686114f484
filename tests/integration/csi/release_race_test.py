# SPDX-License-Identifier: Apache-2.0
"""A release is requested and not finished: files that a pod then writes reach the bucket before its volume is deleted."""
import json
import subprocess
import threading
import time

import grpc
import pytest

from integration.lib.buckets import contents
from paths import BUILD

from .driver import MIB, Driver, command_line, delete_until, mounts, processes, wait_for

Code = grpc.StatusCode


class Slow:
    """Programs whose `cistern <verb>` waits, once started, while the file `hold` exists."""

    def __init__(self, folder, verb):
        self.folder, self.hold = folder / "programs", folder / "hold"
        self.verb = verb
        self.folder.mkdir()
        for program in ("cistern-keeper", "cistern-mount"):
            (self.folder / program).symlink_to(BUILD / "bin" / program)
        script = self.folder / "cistern"
        script.write_text(f'#!/bin/sh\nif [ "$1" = {verb} ]; then while [ -e {self.hold} ]; do sleep 0.02; done; fi\n'
                          f'exec {BUILD}/bin/cistern "$@"\n')
        script.chmod(0o755)
        self.hold.touch()

    def started(self, volume):
        return [p for p in processes() if f" {self.verb} " in command_line(p) and volume in command_line(p)]

    def go(self):
        self.hold.unlink()


@pytest.fixture
def bucket(folder):
    path = folder / "bucket" / "out"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def slow_export(folder):
    return Slow(folder, "export")


@pytest.fixture
def slow_driver(folder, slow_export):
    d = Driver(folder, flags=[f"--programs={slow_export.folder}"])
    yield d.start()
    d.end()


def create(driver, bucket, **more):
    parameters = {"access": "fuse", "export.uri": f"file://{bucket}/", "export.settle": "0s", "export.trigger": "OnRelease",
                  **more}
    volume = driver.client.create("pvc", size=64 * MIB, **parameters).volume_id
    driver.stage(volume)
    return volume, driver.publish(volume)


def give_back(driver, volume):
    driver.unpublish(volume)
    driver.unstage(volume)


def verdict(driver, volume):
    try:
        return json.loads((driver.folder_of(volume) / "export" / "verdict.json").read_text())
    except OSError:
        return {}


def test_files_written_while_an_export_starts_are_exported_too(slow_driver, slow_export, bucket):
    volume, target = create(slow_driver, bucket)
    (target / "early").write_text("1")
    give_back(slow_driver, volume)
    assert slow_driver.client.fails("DeleteVolume", volume_id=volume)[0] == Code.ABORTED
    wait_for(lambda: slow_export.started(volume))
    slow_driver.stage(volume)  # no other call withdraws the release
    target = slow_driver.publish(volume)
    slow_export.go()
    wait_for(lambda: verdict(slow_driver, volume).get("state") == "done")
    (target / "late").write_text("2")
    give_back(slow_driver, volume)
    delete_until(slow_driver, volume)
    assert contents(bucket) == {"early": b"1", "late": b"2"}


def test_a_pod_that_came_and_went_while_an_export_started_is_seen_by_the_next_one(slow_driver, slow_export, bucket):
    volume, target = create(slow_driver, bucket)
    (target / "early").write_text("1")
    give_back(slow_driver, volume)
    slow_driver.client.fails("DeleteVolume", volume_id=volume)
    wait_for(lambda: slow_export.started(volume))
    slow_driver.stage(volume)
    target = slow_driver.publish(volume)
    (target / "late").write_text("2")
    slow_driver.kill()  # and its record of the export with it
    slow_driver.start()
    give_back(slow_driver, volume)
    slow_export.go()
    delete_until(slow_driver, volume)
    assert contents(bucket) == {"early": b"1", "late": b"2"}


def test_a_pod_is_refused_while_the_last_export_runs_and_gets_the_volume_after_it(driver, bucket):
    volume, target = create(driver, bucket, bandwidth="64Ki")
    (target / "early").write_bytes(bytes(512 << 10))
    give_back(driver, volume)
    driver.client.fails("DeleteVolume", volume_id=volume)
    wait_for(lambda: verdict(driver, volume).get("state") == "running")
    with pytest.raises(grpc.RpcError) as refused:
        driver.stage(volume)
    assert refused.value.code() == Code.ABORTED and "CIS4030" in refused.value.details()
    wait_for(lambda: verdict(driver, volume).get("state") == "done")

    def staged():
        try:
            return driver.stage(volume) is not None
        except grpc.RpcError as e:
            assert e.code() == Code.ABORTED, e
            return False
    wait_for(staged)
    (driver.publish(volume) / "late").write_text("2")
    give_back(driver, volume)
    delete_until(driver, volume)
    assert contents(bucket)["late"] == b"2"


def test_a_volume_that_was_asked_to_go_stays_open_when_a_pod_has_it_again_after_a_restart(driver, bucket):
    volume, target = create(driver, bucket, **{"export.conflict": "fail"})
    (bucket / "early").write_text("another's")
    (target / "early").write_text("1")
    give_back(driver, volume)
    wait_for(lambda: driver.client.fails("DeleteVolume", volume_id=volume)[0] == Code.FAILED_PRECONDITION)
    record = driver.folder_of(volume) / "mounts.json"
    sealed = json.loads(record.read_text())
    assert sealed["release"] == "sealed"
    driver.stage(volume)
    driver.publish(volume)
    known = json.loads(record.read_text())
    assert "release" not in known and known["writes"] > sealed["writes"]
    give_back(driver, volume)
    (bucket / "early").unlink()
    delete_until(driver, volume)
    assert contents(bucket) == {"early": b"1"}


@pytest.mark.parametrize("attached", [True, False])
def test_a_volume_whose_record_of_mounts_is_missing_counts_as_written(driver, bucket, attached):
    volume, target = create(driver, bucket)
    (target / "weights").write_text("1")
    give_back(driver, volume)
    driver.stop()
    (driver.folder_of(volume) / "mounts.json").unlink()
    data = driver.folder_of(volume) / "data"
    if not attached and str(data) in mounts():  # as after a restart of the machine
        subprocess.run(["umount", data], check=True)
    driver.start()
    delete_until(driver, volume)
    assert contents(bucket) == {"weights": b"1"}


def test_a_record_that_is_lost_counts_more_than_a_verdict_that_is_there(driver, bucket):
    """The verdict is for one write; a record made up after a loss starts at one, too."""
    volume, target = create(driver, bucket)
    (bucket / "early").write_text("another's")
    (target / "early").write_text("1")
    give_back(driver, volume)
    wait_for(lambda: driver.client.fails("DeleteVolume", volume_id=volume)[0] == Code.FAILED_PRECONDITION)
    (bucket / "early").unlink()
    path = driver.folder_of(volume)
    wait_for(lambda: not any(" export " in command_line(p) and volume in command_line(p) for p in processes()))
    made = json.loads((path / "export" / "verdict.json").read_text())
    made |= {"state": "done", "failures": []}
    driver.stop()
    (path / "export" / "verdict.json").write_text(json.dumps(made))
    (path / "mounts.json").unlink()
    driver.start()
    delete_until(driver, volume)
    assert contents(bucket) == {"early": b"1"}


def test_new_volume_without_a_mount_is_deleted_without_export(driver, bucket):
    volume = driver.client.create("pvc", size=64 * MIB, **{"export.uri": f"file://{bucket}/"}).volume_id
    assert delete_until(driver, volume) == []


def test_cancelled_publish_never_mounts(folder):
    source = folder / "source"
    source.mkdir()
    (source / "object").write_text("1")
    hydrate = Slow(folder, "hydrate")
    hydrate.go()
    driver = Driver(folder, flags=[f"--programs={hydrate.folder}"]).start()
    try:
        volume = driver.client.create("pvc", size=64 * MIB, uri=f"file://{source}/").volume_id
        driver.stage(volume)
        status = driver.folder_of(volume) / "status.json"
        wait_for(lambda: status.exists() and json.loads(status.read_text())["phase"] == "done")
        whole, partly = status.with_name("whole"), status.with_name("partly")
        whole.write_text(status.read_text())
        partly.write_text(json.dumps(json.loads(status.read_text()) | {"phase": "fetching"}))
        hydrate.hold.touch()
        partly.rename(status)
        driver.target(volume).parent.mkdir(parents=True)
        answers = []

        def publish():
            answers.append(driver.client.fails("NodePublishVolume", timeout=60, **driver.publish_fields(volume)))
        waiting = threading.Thread(target=publish)
        waiting.start()
        wait_for(lambda: hydrate.started(volume))
        time.sleep(2)  # now it looks twice a second: the data comes between two of its looks
        driver.unpublish(volume)
        whole.rename(status)
        waiting.join(60)
        assert answers and answers[0][0] == Code.UNAVAILABLE and "CIS3018" in answers[0][1]
        assert str(driver.target(volume)) not in mounts()
        driver.unstage(volume)
    finally:
        driver.end()
