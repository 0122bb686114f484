# SPDX-License-Identifier: Apache-2.0
"""The staging mount of a volume is lost while pods use it: a pod that comes later gets the data or an error, never a dead
or an empty directory."""
import errno
import os
import signal
import subprocess

import grpc
import pytest

from .driver import MIB, Mode, capability, command_line, delete_until, end_all, has_ended, processes, wait_for
from .kill_test import insist

Code = grpc.StatusCode
SHARED = capability(Mode.SINGLE_NODE_MULTI_WRITER)


@pytest.fixture
def volume(driver):
    """Staged and published once, with a file; its target is `first`."""
    made = driver.client.create("pvc", size=16 * MIB, cap=SHARED, access="fuse").volume_id
    driver.stage(made, SHARED)
    (driver.publish(made, "first", SHARED) / "file").write_text("words")
    return made


def kill_keeper_and_driver(driver):
    """At one instant: neither is there to keep the other's descriptors."""
    victims = [driver.process.pid, *driver.keeper_pids()]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    driver.kill()
    wait_for(lambda: all(map(has_ended, victims)))  # each has descriptors of the mounts
    end_all(f"{driver.folder}/")
    driver.start()


def error_of(path):
    with pytest.raises(OSError) as raised:
        list(path.iterdir())
    return raised.value.errno


def test_publish_onto_a_lost_mount_mounts_it_again(driver, volume):
    first = driver.target(volume, "first")
    assert (first / "file").stat().st_size == 5  # the kernel has its attributes in its cache
    kill_keeper_and_driver(driver)
    assert error_of(first) == errno.ENOTCONN
    second = driver.publish(volume, "second", SHARED)
    assert (second / "file").read_text() == "words"
    (second / "more").write_text("words")
    assert error_of(first) == errno.ENOTCONN, "the old pod keeps its dead mount"
    assert (driver.publish(volume, "third", SHARED) / "more").read_text() == "words"
    for pod in ("first", "second", "third"):
        driver.unpublish(volume, pod)
    driver.unstage(volume)
    # The dead connection keeps a file of the disk open until its last mount is gone: also the copies of it in mount
    # namespaces that other tests make.
    for code, text in delete_until(driver, volume, 120):
        assert code == Code.FAILED_PRECONDITION and "cannot unmount" in text, text


def test_republish_onto_a_dead_target_replaces_it(driver, volume):
    kill_keeper_and_driver(driver)
    assert (driver.publish(volume, "first", SHARED) / "file").read_text() == "words"


def stages(driver, volume):
    try:
        return driver.stage(volume) is not None
    except grpc.RpcError as e:
        assert "Input/output error" in e.details(), e
        return False


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_a_file_system_that_shut_down_is_reported_and_mounted_again_with_the_next_pod(driver, access):
    volume = driver.client.create("pvc", size=32 * MIB, access=access).volume_id
    driver.stage(volume)
    target = driver.publish(volume)
    (target / "file").write_text("words")
    os.sync()
    data = driver.folder_of(volume) / "data"
    subprocess.run(["xfs_io", "-x", "-c", "shutdown", data], check=True)
    assert error_of(target) == errno.EIO
    health = driver.client.call("NodeGetVolumeHealth", volume_id=volume, volume_publish_path=str(target)).volume_health
    assert [h.reason for h in health.health_statuses] == ["Unreadable"], health
    driver.unpublish(volume)
    driver.unstage(volume)
    # Copies of the mount in namespaces that other tests make keep the file system for a while.
    wait_for(lambda: stages(driver, volume))
    assert (driver.publish(volume) / "file").read_text() == "words"
    health = driver.client.call("NodeGetVolumeHealth", volume_id=volume, volume_publish_path=str(target)).volume_health
    assert not health.health_statuses, health
    driver.unpublish(volume)
    driver.unstage(volume)
    driver.delete(volume)


def test_publish_mounts_again_what_was_unmounted_by_hand_and_is_lost(driver, volume):
    kill_keeper_and_driver(driver)
    subprocess.run(["umount", "-l", driver.staging(volume)], check=True)
    assert (driver.publish(volume, "second", SHARED) / "file").read_text() == "words"


def test_publish_is_refused_with_the_way_out_when_the_mount_cannot_be_made_again(driver, volume):
    subprocess.run(["umount", "-l", driver.staging(volume)], check=True)
    driver.target(volume, "second").parent.mkdir(parents=True)
    code, text = driver.client.fails("NodePublishVolume", **driver.publish_fields(volume, "second", SHARED))
    assert code == Code.FAILED_PRECONDITION and "CIS3020" in text and "delete all pods" in text
    assert (driver.target(volume, "first") / "file").read_text() == "words"


def test_publish_from_another_mount_at_the_staging_path_is_refused(driver, volume):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", driver.staging(volume)], check=True)
    driver.target(volume, "second").parent.mkdir(parents=True)
    code, text = driver.client.fails("NodePublishVolume", **driver.publish_fields(volume, "second", SHARED))
    assert code == Code.FAILED_PRECONDITION and "CIS3020" in text
    subprocess.run(["umount", driver.staging(volume)], check=True)
    assert (driver.publish(volume, "second", SHARED) / "file").read_text() == "words"


def test_publish_from_a_mount_that_does_not_answer_ends_in_time(driver, volume):
    serving, = [pid for pid in processes() if "cistern-mount" in command_line(pid) and volume in command_line(pid)]
    driver.target(volume, "second").parent.mkdir(parents=True)
    os.kill(serving, signal.SIGSTOP)
    try:
        code, text = driver.client.fails("NodePublishVolume", timeout=20, **driver.publish_fields(volume, "second", SHARED))
        assert code == Code.UNAVAILABLE and "CIS3019" in text
    finally:
        os.kill(serving, signal.SIGCONT)
    assert (driver.publish(volume, "second", SHARED) / "file").read_text() == "words"


def test_retries_onto_a_mount_that_does_not_answer_hold_up_no_other_volume(driver, volume):
    serving, = [pid for pid in processes() if "cistern-mount" in command_line(pid) and volume in command_line(pid)]
    other = driver.client.create("other", size=16 * MIB, access="fuse").volume_id
    driver.stage(other)
    driver.target(volume, "second").parent.mkdir(parents=True)
    os.kill(serving, signal.SIGSTOP)
    try:
        for _ in range(17):
            code, text = driver.client.fails("NodePublishVolume", **driver.publish_fields(volume, "second", SHARED))
            assert code == Code.UNAVAILABLE and "CIS3019" in text
        driver.publish(other)
    finally:
        os.kill(serving, signal.SIGCONT)
    insist(driver, lambda client: client.call("NodePublishVolume", **driver.publish_fields(volume, "second", SHARED)))
    assert (driver.target(volume, "second") / "file").read_text() == "words"


def test_calls_that_need_a_frozen_keeper_end_with_the_cause(driver, volume):
    keeper, = driver.keeper_pids()
    other = driver.client.create("other", size=16 * MIB, access="fuse").volume_id
    driver.unpublish(volume, "first")
    driver.staging(other).mkdir(parents=True)
    os.kill(keeper, signal.SIGSTOP)
    try:
        for code, method, fields in (
                (Code.UNAVAILABLE, "NodeStageVolume", {"volume_capability": SHARED, "volume_id": other}),
                (Code.DEADLINE_EXCEEDED, "NodeUnstageVolume", {"volume_id": volume})):
            answered, text = driver.client.fails(method, timeout=120, staging_target_path=str(driver.staging(fields["volume_id"])), **fields)
            assert answered == code and "keeper" in text and "no answer" in text and "CIS3101" in text, (answered, text)
    finally:
        os.kill(keeper, signal.SIGCONT)
    insist(driver, lambda c: driver.stage(other, SHARED, client=c))
    insist(driver, lambda c: driver.unstage(volume, client=c))


def test_frozen_keeper_is_replaced_and_its_mounts_go_on(driver, volume):
    keeper, = driver.keeper_pids()
    first = driver.target(volume, "first")
    with open(first / "file") as open_file:
        os.kill(keeper, signal.SIGSTOP)
        try:
            wait_for(lambda: driver.keeper_pids() not in ([], [keeper]), 300)
        finally:
            if not has_ended(keeper):
                os.kill(keeper, signal.SIGCONT)
        assert open_file.read() == "words"
    (first / "more").write_text("words")
    assert "has not answered for a minute" in driver.log_text()
    other = driver.client.create("other", size=16 * MIB, access="fuse").volume_id
    insist(driver, lambda c: driver.stage(other, SHARED, client=c))


def test_a_lost_bind_is_made_again(driver):
    made = driver.client.create("pvc", size=16 * MIB, cap=SHARED, access="bind").volume_id
    driver.stage(made, SHARED)
    (driver.publish(made, "first", SHARED) / "file").write_text("words")
    subprocess.run(["umount", "-l", driver.staging(made) / "bind"], check=True)
    assert (driver.publish(made, "second", SHARED) / "file").read_text() == "words"


def test_stage_onto_a_lost_mount_mounts_it_again(driver, volume):
    kill_keeper_and_driver(driver)
    driver.client.call("NodeStageVolume", volume_id=volume, volume_capability=SHARED,
                       staging_target_path=str(driver.staging(volume)))
    assert (driver.staging(volume) / "file").read_text() == "words"
