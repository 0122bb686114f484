# SPDX-License-Identifier: Apache-2.0
"""The driver, its keeper and its mounts are killed while they are used: a repeated call gets the right answer, and in
the end nothing is left."""
import os
import random
import signal
import subprocess
import threading
import time

import grpc
import pytest

from integration.fuse.mounts import KEEPER, MOUNT_PROCESS

from .driver import MIB, Client, Driver, command_line, has_ended, mounts, processes, wait_for

Code = grpc.StatusCode
KILLS = int(os.environ.get("CISTERN_KILLS", "15"))  # fifty before it was called done
PASSING = {Code.UNAVAILABLE, Code.ABORTED, Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNKNOWN}


def insist(driver, step, seconds=60):
    """As the kubelet does: again and again, until it is done. Only passing errors are allowed on the way."""
    end = time.monotonic() + seconds
    while True:
        client = Client(driver.socket)
        try:
            return step(client)
        except grpc.RpcError as e:
            assert e.code() in PASSING, (e.code(), e.details())
            assert time.monotonic() < end, e.details()
            time.sleep(0.02)
        finally:
            client.close()


def walk(driver, name, access):
    volume = insist(driver, lambda c: c.create(name, size=16 * MIB, access=access)).volume_id
    insist(driver, lambda c: driver.stage(volume, client=c))
    target = insist(driver, lambda c: driver.publish(volume, client=c))
    (target / "file").write_text(name)
    assert (target / "file").read_text() == name
    insist(driver, lambda c: driver.unpublish(volume, client=c))
    assert not target.exists()
    insist(driver, lambda c: driver.unstage(volume, client=c))
    insist(driver, lambda c: driver.delete(volume, client=c))


@pytest.mark.timeout(600)
def test_kills_of_the_driver_at_random_moments_end_right(driver):
    rng, done, failures, walked = random.Random(KILLS), threading.Event(), [], [0]

    def drive(worker):
        i = 0
        while not done.is_set() and not failures:
            try:
                walk(driver, f"pvc-{worker}-{i}", "fuse" if i % 2 else "bind")
                walked[0] += 1
            except BaseException as e:
                failures.append(e)
            i += 1

    threads = [threading.Thread(target=drive, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0, 0.4))
        driver.kill()
        driver.start()
        if failures:
            break
    done.set()
    for t in threads:
        t.join()
    assert failures == []
    assert walked[0] > KILLS // 5
    pool = driver.pools["default"]
    assert not driver.client.call("ListVolumes").entries
    assert [m for m in mounts() if str(driver.folder) in m] == []
    wait_for(lambda: not any(list((pool / part).iterdir()) for part in ("volumes", "making", "trash")))


def test_a_keeper_that_dies_is_started_again_and_no_reader_notices(driver):
    volume = driver.client.create("pvc", access="fuse").volume_id
    driver.stage(volume)
    target = driver.publish(volume)
    (target / "file").write_text("words")
    with open(target / "file") as held:
        keeper, = driver.keeper_pids()
        os.kill(keeper, signal.SIGKILL)
        assert held.read() == "words"
        assert (target / "file").read_text() == "words"
    wait_for(lambda: driver.keeper_pids() not in ([], [keeper]))
    (target / "more").write_text("words")
    driver.unpublish(volume)
    driver.unstage(volume)
    driver.delete(volume)


def test_a_driver_that_is_stopped_without_a_keeper_waits_for_the_next_one(driver):
    volume = driver.client.create("pvc", access="fuse").volume_id
    driver.stage(volume)
    target = driver.publish(volume)
    (target / "file").write_text("words")
    keeper, = driver.keeper_pids()
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: has_ended(keeper))
    assert driver.stop() == 0
    assert (target / "file").read_text() == "words"


def fails_to_stage(driver, volume):
    with pytest.raises(grpc.RpcError):
        driver.stage(volume)


def start_keeper(driver, mount_program):
    return subprocess.Popen([KEEPER, "--socket", f"{driver.state}/keeper.sock", "--mount-program", mount_program])


@pytest.mark.parametrize("moment", ["mounted", "published"])
def test_a_keeper_that_dies_after_it_took_over_loses_no_mount_that_was_reported(driver, folder, moment):
    """A mount begins in one keeper and is ready in the next, which dies before or after the driver has its descriptors."""
    slow = folder / "slow-mount"
    slow.write_text(f'#!/bin/sh\nsleep 2\nexec {MOUNT_PROCESS} "$@"\n')
    slow.chmod(0o700)
    for turn in range(4):
        volume = driver.client.create(f"pvc-{turn}", size=16 * MIB, access="fuse").volume_id
        first = start_keeper(driver, slow)
        wait_for(lambda: driver.keeper_pids() == [first.pid])
        asking = threading.Thread(target=fails_to_stage, args=(driver, volume))
        asking.start()
        wait_for(lambda: str(driver.staging(volume)) in mounts())
        second = start_keeper(driver, MOUNT_PROCESS)
        assert first.wait(60) == 0
        asking.join()
        if moment == "mounted":
            second.kill()
        insist(driver, lambda c: driver.stage(volume, client=c))
        target = insist(driver, lambda c: driver.publish(volume, client=c))
        second.kill()
        second.wait()
        (target / "file").write_text("words")
        assert (target / "file").read_text() == "words"
        driver.unpublish(volume)
        driver.unstage(volume)
        driver.delete(volume)


def test_a_mount_process_that_dies_is_started_again(driver):
    volume = driver.client.create("pvc", access="fuse").volume_id
    driver.stage(volume)
    target = driver.publish(volume)
    (target / "file").write_text("words")
    served = [p for p in processes() if "cistern-mount" in command_line(p) and p in children(driver.keeper_pids()[0])]
    assert len(served) == 1
    os.kill(served[0], signal.SIGKILL)
    assert (target / "file").read_text() == "words"


def children(pid):
    return [int(p) for t in os.listdir(f"/proc/{pid}/task") for p in open(f"/proc/{pid}/task/{t}/children").read().split()]


def test_an_idle_keeper_ends_with_the_driver_and_one_with_mounts_stays(driver):
    volume = driver.client.create("pvc", access="fuse").volume_id
    driver.stage(volume)
    driver.stop()
    keeper, = driver.keeper_pids()
    driver.start()
    assert driver.keeper_pids() == [keeper]
    driver.unstage(volume)
    driver.stop()
    assert driver.keeper_pids() == []


def test_the_driver_ends_in_time_while_a_call_waits(driver, folder):
    source = folder / "bucket" / "data"
    source.mkdir(parents=True)
    (source / "big").write_bytes(bytes(16 * MIB))
    volume = driver.client.create("pvc", size=64 * MIB, uri=f"file://{source}/", bandwidth="1Mi").volume_id
    driver.stage(volume)
    driver.target(volume).parent.mkdir(parents=True)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(
        driver.client.fails("NodePublishVolume", timeout=60, **driver.publish_fields(volume))))
    waiting.start()
    time.sleep(0.5)
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(45) == 0  # the call would wait for a minute
    waiting.join(45)
    assert answers[0][0] == Code.UNAVAILABLE


def test_a_second_pool_of_that_name_on_another_disk_is_not_taken_for_the_first(driver):
    volume = driver.client.create("pvc").volume_id
    driver.stop()
    other = Driver(driver.folder / "other").start()
    try:
        code, text = other.client.fails("ControllerGetVolume", volume_id=volume)
        assert code == Code.FAILED_PRECONDITION and "CIS3001" in text
        code, text = other.client.fails("DeleteVolume", volume_id=volume)
        assert code == Code.FAILED_PRECONDITION and "CIS3001" in text, "a disk that is not mounted is not a deleted volume"
    finally:
        other.clean_up()
