# SPDX-License-Identifier: Apache-2.0
"""Files that a pod wrote are in the bucket before its volume is deleted; otherwise the volume stays and reports the cause."""
import json
import os
import signal

import grpc
import pytest

from integration.lib.buckets import contents
from integration.lib.noise import noise

from .driver import MIB, command_line, delete_until, processes, wait_for

Code = grpc.StatusCode


def exports(volume):
    return [p for p in processes() if " export " in command_line(p) and volume in command_line(p)]


def write_checkpoints(target, count=5, size=MIB):
    for i in range(count):
        folder = target / f"step-{i}"
        folder.mkdir()
        (folder / "weights").write_bytes(noise(i, size))
    return {k: v for k, v in contents(target).items() if not k.startswith("lost+found")}


@pytest.fixture
def bucket(folder):
    path = folder / "bucket" / "out"
    path.mkdir(parents=True)
    return path


def create(driver, bucket, access="fuse", **more):
    parameters = {"access": access, "export.uri": f"file://{bucket}/", "export.settle": "0s", **more}
    volume = driver.client.create("pvc", size=64 * MIB, **parameters).volume_id
    driver.stage(volume)
    return volume, driver.publish(volume)


def give_back(driver, volume):
    driver.unpublish(volume)
    driver.unstage(volume)


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_written_files_are_in_the_bucket_when_delete_succeeds(driver, bucket, access):
    volume, target = create(driver, bucket, access)
    written = write_checkpoints(target)
    give_back(driver, volume)
    codes = delete_until(driver, volume)
    assert {code for code, _ in codes} <= {Code.ABORTED}
    assert contents(bucket) == written
    assert not driver.client.call("ListVolumes").entries


def test_an_export_begins_when_the_last_pod_has_gone(driver, bucket):
    volume, target = create(driver, bucket)
    written = write_checkpoints(target)
    driver.unpublish(volume)
    wait_for(lambda: contents(bucket) == written)
    driver.unstage(volume)
    delete_until(driver, volume)


def test_a_log_that_the_next_pod_appends_to_does_not_block_the_release(driver, bucket):
    volume, target = create(driver, bucket)
    (target / "train.log").write_text("first\n")
    driver.unpublish(volume)
    wait_for(lambda: not exports(volume) and contents(bucket) == {"train.log": b"first\n"})
    target = driver.publish(volume)
    with (target / "train.log").open("a") as log:
        log.write("second\n")
    give_back(driver, volume)
    assert {code for code, _ in delete_until(driver, volume)} <= {Code.ABORTED}
    assert contents(bucket) == {"train.log": b"first\nsecond\n"}


def test_files_written_after_an_earlier_export_are_exported_too(driver, bucket):
    volume, target = create(driver, bucket)
    write_checkpoints(target)
    driver.unpublish(volume)
    wait_for(lambda: not exports(volume) and len(contents(bucket)) == 5)
    target = driver.publish(volume)
    (target / "late").write_text("words")
    give_back(driver, volume)
    delete_until(driver, volume)
    assert contents(bucket)["late"] == b"words"


def test_exports_and_unpublishes_keep_their_order_when_the_clock_was_set_back(driver, bucket):
    volume, target = create(driver, bucket)
    verdict_file, record_file = (driver.folder_of(volume) / name for name in ("export/verdict.json", "mounts.json"))
    (target / "first").write_text("words")
    driver.unpublish(volume)
    wait_for(lambda: not exports(volume) and contents(bucket))
    verdict = json.loads(verdict_file.read_text())
    verdict["startedNs"] += 3600 * 10**9  # the clock was ahead by an hour, and is right now
    verdict_file.write_text(json.dumps(verdict))
    target = driver.publish(volume)
    (target / "second").write_text("words")
    driver.unpublish(volume)
    unpublished = json.loads(record_file.read_text())["unpublished"]
    assert unpublished > verdict["startedNs"], "what was written after that export is to be exported"
    wait_for(lambda: not exports(volume) and len(contents(bucket)) == 2)
    assert json.loads(verdict_file.read_text())["startedNs"] >= unpublished, "and after the next one, nothing is"
    driver.unstage(volume)
    delete_until(driver, volume)


def test_pending_files_are_reported_in_bytes_and_files(driver, bucket):
    volume, target = create(driver, bucket, **{"export.trigger": "OnRelease"})
    write_checkpoints(target, count=40, size=MIB)
    give_back(driver, volume)
    code, text = driver.client.fails("DeleteVolume", volume_id=volume)
    assert code == Code.ABORTED and "CIS4030" in text
    codes = delete_until(driver, volume)
    assert {code for code, _ in codes} <= {Code.ABORTED}
    assert len(contents(bucket)) == 40


def test_a_bucket_that_refuses_keeps_the_volume_and_names_the_first_file(driver, bucket):
    volume, target = create(driver, bucket, **{"export.trigger": "OnRelease"})
    written = write_checkpoints(target, count=2)
    give_back(driver, volume)
    (bucket / "step-0").mkdir()
    (bucket / "step-0" / "weights").write_text("another's")  # conflict: fail

    def refused():
        code, text = driver.client.fails("DeleteVolume", volume_id=volume)
        assert code in (Code.ABORTED, Code.FAILED_PRECONDITION), text
        return code == Code.FAILED_PRECONDITION and "step-0/weights" in text
    wait_for(refused)
    assert (bucket / "step-0" / "weights").read_text() == "another's"
    assert (driver.folder_of(volume) / "volume.json").exists()
    condition = driver.client.call("ControllerGetVolume", volume_id=volume).status.volume_condition
    assert condition.abnormal and "step-0/weights" in condition.message
    (bucket / "step-0" / "weights").unlink()
    delete_until(driver, volume)
    assert contents(bucket) == written


def test_discard_is_an_explicit_word(driver, bucket):
    volume, target = create(driver, bucket, **{"export.trigger": "OnRelease", "export.onFailure": "Discard"})
    write_checkpoints(target, count=2)
    give_back(driver, volume)
    (bucket / "step-0").mkdir()
    (bucket / "step-0" / "weights").write_text("another's")
    delete_until(driver, volume)
    assert "not exported" in driver.log_text()


@pytest.mark.parametrize("damage", [b"{", b"", None])
def test_a_volume_whose_record_is_damaged_is_deleted_only_when_a_person_moved_it_to_trash(driver, bucket, damage):
    volume, target = create(driver, bucket)
    write_checkpoints(target, count=1)
    give_back(driver, volume)
    wait_for(lambda: not exports(volume))
    path = driver.folder_of(volume)
    if damage is None:
        (path / "volume.json").unlink()
    else:
        (path / "volume.json").write_bytes(damage)
    with pytest.raises(grpc.RpcError) as refused:
        driver.delete(volume)
    assert "CIS2005" in refused.value.details() and (path / "data").exists()
    driver.stop()
    path.rename(path.parent.parent / "trash" / volume)
    driver.start()
    driver.delete(volume)
    wait_for(lambda: not (path.parent.parent / "trash" / volume).exists())


def test_volume_published_read_only_is_deleted_without_export(driver, bucket):
    volume = driver.client.create("pvc", size=64 * MIB, access="bind", **{"export.uri": f"file://{bucket}/"}).volume_id
    driver.stage(volume)
    driver.publish(volume, readonly=True)
    give_back(driver, volume)
    assert delete_until(driver, volume) == []


@pytest.mark.parametrize("victim", ["export", "driver", "both"])
def test_a_kill_in_the_middle_of_the_export_loses_nothing(driver, bucket, victim):
    volume, target = create(driver, bucket, **{"export.trigger": "OnRelease"})
    written = write_checkpoints(target, count=30, size=MIB)
    give_back(driver, volume)
    driver.client.fails("DeleteVolume", volume_id=volume)
    wait_for(lambda: exports(volume) or contents(bucket))
    if victim in ("driver", "both"):
        driver.kill()
    for pid in exports(volume) if victim in ("export", "both") else []:
        os.kill(pid, signal.SIGKILL)
    if victim in ("driver", "both"):
        driver.start()
    delete_until(driver, volume)
    assert contents(bucket) == written


@pytest.mark.parametrize("was_adopted", [False, True])
def test_an_export_that_is_stopped_is_killed_and_started_again(driver, bucket, was_adopted):
    """As after a SIGSTOP, or a freeze of its control group: it would keep the lock of the volume."""
    volume, target = create(driver, bucket, **{"export.trigger": "OnRelease", "bandwidth": "1Mi"})
    written = write_checkpoints(target, count=8, size=MIB)
    give_back(driver, volume)
    driver.client.fails("DeleteVolume", volume_id=volume)
    wait_for(lambda: contents(bucket))
    stopped = exports(volume)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    if was_adopted:
        driver.kill()
        driver.start()
        driver.client.fails("DeleteVolume", volume_id=volume)
    wait_for(lambda: not set(stopped) & set(exports(volume)), 180)
    delete_until(driver, volume)
    assert contents(bucket) == written
