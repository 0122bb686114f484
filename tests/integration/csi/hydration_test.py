# SPDX-License-Identifier: Apache-2.0
"""A volume with a source: made at once, filled by a child of its own, published when the last byte is there."""
import os
import signal
import time

import grpc
import pytest

from integration.lib import threads
from integration.lib.buckets import contents
from integration.lib.noise import noise
from paths import BUILD

from .driver import MIB, Driver, ask_until_ready, command_line, has_ended, processes, wait_for

Code = grpc.StatusCode


def make_source(folder, files, size, seed=1):
    source = folder / "bucket" / "data"
    source.mkdir(parents=True)
    for i in range(files):
        path = source / f"part-{i % 7}" / f"{i:05}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(noise(f"{seed} {i}", size))
    return source


def hydrations(volume):
    return [p for p in processes() if "hydrate" in command_line(p) and volume in command_line(p)]


def uri(source):
    return f"file://{source}/"


def begin(driver, folder, size, bandwidth):
    """A volume whose hydration of two objects is under way: (its source, its id, the process that fills it)"""
    source = make_source(folder, 2, size)
    volume = driver.client.create("pvc", size=64 * MIB, uri=uri(source), bandwidth=bandwidth).volume_id
    wait_for(lambda: hydrations(volume))
    child, = hydrations(volume)
    wait_for(lambda: threads.find(child, "coordinator"))  # it has the lock of the volume
    return source, volume, child


@pytest.mark.parametrize("access", ["bind", "fuse"])
def test_a_pod_sees_exactly_what_the_bucket_holds(driver, folder, access):
    source = make_source(folder, 60, 10_000)
    volume = driver.client.create("pvc", size=64 * MIB, uri=uri(source), access=access).volume_id
    driver.stage(volume)
    target = driver.publish(volume)
    assert {k: v for k, v in contents(target).items() if not k.startswith("lost+found")} == contents(source)
    driver.unpublish(volume)
    driver.unstage(volume)
    driver.delete(volume)


def test_create_returns_at_once_and_publish_says_how_far_it_is(driver, folder):
    source = make_source(folder, 2, 4 * MIB)
    volume = driver.client.create("pvc", size=64 * MIB, uri=uri(source), bandwidth="1Mi").volume_id
    driver.stage(volume)
    driver.target(volume).parent.mkdir(parents=True)
    before = time.monotonic()
    code, text = driver.client.fails("NodePublishVolume", timeout=4, **driver.publish_fields(volume))
    assert time.monotonic() - before > 2  # and less than the four seconds, or it were another code
    assert code == Code.UNAVAILABLE and "CIS3015" in text and "%" in text, text
    condition = driver.client.call("ControllerGetVolume", volume_id=volume).status.volume_condition
    assert not condition.abnormal and "%" in condition.message
    assert len(hydrations(volume)) == 1
    target = ask_until_ready(driver, volume)
    assert contents(source).items() <= contents(target).items()


def test_the_hydration_survives_the_driver_and_is_not_started_twice(driver, folder):
    source, volume, child = begin(driver, folder, 8 * MIB, "2Mi")
    for how in (signal.SIGKILL, signal.SIGTERM):
        driver.stop(how)
        assert hydrations(volume) == [child]
        driver.start()
        time.sleep(0.5)
        assert hydrations(volume) in ([child], [])
    driver.stage(volume)
    assert contents(source).items() <= contents(ask_until_ready(driver, volume)).items()


def test_a_killed_hydration_is_started_again(driver, folder):
    source, volume, child = begin(driver, folder, 3 * MIB, "2Mi")
    os.kill(child, signal.SIGKILL)
    driver.stage(volume)
    assert contents(source).items() <= contents(ask_until_ready(driver, volume)).items()


def test_a_stuck_hydration_is_killed_and_started_again(folder):
    driver = Driver(folder, env={"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_PROGRAM": "cistern",
                                 "CISTERN_FAST_CLOCK": "30"}).start()
    try:
        source, volume, child = begin(driver, folder, 8 * MIB, "100Ki")
        thread, = threads.find(child, "coordinator")
        threads.stop(thread)
        wait_for(lambda: has_ended(child), 180)
        threads.reap(thread)
        assert "its thread 'coordinator' has been stuck for ten minutes" in driver.log_text()
        driver.stage(volume)
        assert contents(source).items() <= contents(ask_until_ready(driver, volume)).items()
    finally:
        driver.end()


def test_a_hydration_that_died_with_the_driver_is_taken_up_by_the_next(driver, folder):
    source, volume, child = begin(driver, folder, 3 * MIB, "2Mi")
    driver.kill()
    os.kill(child, signal.SIGKILL)
    driver.start()
    wait_for(lambda: hydrations(volume))
    driver.stage(volume)
    assert contents(source).items() <= contents(ask_until_ready(driver, volume)).items()


def test_deleting_a_volume_ends_its_hydration_and_does_not_wait_for_it(driver, folder):
    _, volume, _ = begin(driver, folder, 24 * MIB, "1Mi")
    before = time.monotonic()
    driver.delete(volume)
    assert time.monotonic() - before < 24  # half of its time
    assert hydrations(volume) == []
    assert not driver.client.call("ListVolumes").entries


def test_deleting_ends_a_hydration_that_an_earlier_driver_started(driver, folder):
    _, volume, _ = begin(driver, folder, 8 * MIB, "1Mi")
    driver.kill()
    driver.start()
    driver.delete(volume)
    assert hydrations(volume) == []


def test_missing_source_is_reported_to_the_pod_and_found_when_it_appears(driver, folder):
    source = folder / "bucket" / "data"
    volume = driver.client.create("pvc", size=64 * MIB, uri=uri(source)).volume_id
    driver.stage(volume)
    driver.target(volume).parent.mkdir(parents=True)

    def told():
        code, text = driver.client.fails("NodePublishVolume", timeout=10, **driver.publish_fields(volume))
        assert code in (Code.UNAVAILABLE, Code.ABORTED), text
        return "CIS3016" in text and str(source) in text
    wait_for(told)
    condition = driver.client.call("ControllerGetVolume", volume_id=volume).status.volume_condition
    assert condition.abnormal and str(source) in condition.message
    make_source(folder, 3, 1000)
    assert contents(source).items() <= contents(ask_until_ready(driver, volume)).items()


def test_a_blank_volume_needs_no_hydration(driver):
    volume = driver.client.create("pvc", hydration="none").volume_id
    driver.stage(volume)
    assert driver.publish(volume).is_dir()
    assert hydrations(volume) == []
