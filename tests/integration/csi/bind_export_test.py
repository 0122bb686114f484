# SPDX-License-Identifier: Apache-2.0
"""A pod writes through a bind mount, where no request shows its changes: each of them is in the bucket all the same."""
import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import grpc
import pytest

from integration.lib.buckets import contents

from .driver import MIB, capability, command_line, delete_until, end_all, mounts, processes, wait_for
from .release_test import bucket, create, give_back  # noqa: F401 (bucket is a fixture)

Code = grpc.StatusCode
KILLS = int(os.environ.get("CISTERN_KILLS", "15"))
WRITER = Path(__file__).with_name("bind_writer.py")


def survivor(target, code):
    """A process in the pod's directory that outlives the pod, and acts when its input ends."""
    child = subprocess.Popen([sys.executable, "-c", code], cwd=target, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("access, error", [("fuse", "not connected"), ("bind", "Read-only file system")])
def test_a_process_that_outlives_its_pod_cannot_write_past_the_last_export(driver, bucket, access, error):
    volume, target = create(driver, bucket, access)
    (target / "early").write_text("early")
    late = survivor(target, "print('ready', flush=True); input(); open('late', 'w').write('late')")
    try:
        give_back(driver, volume)
        delete_until(driver, volume)
    finally:
        _, text = late.communicate("now\n")
    assert late.returncode != 0 and error in text
    assert contents(bucket) == {"early": b"early"}


def test_a_process_that_outlives_its_pod_and_the_mount_process_does_not_keep_the_volume(driver, bucket):
    volume, target = create(driver, bucket)
    for n in range(10):
        (target / f"file-{n}").write_text("early")
    late = survivor(target, "print('ready', flush=True); input(); open('late', 'w').write('late')")
    try:
        driver.unpublish(volume)
        serving = [p for p in processes() if "cistern-mount" in command_line(p) and volume in command_line(p)]
        Timer(1, os.kill, (*serving, signal.SIGKILL)).start()  # the keeper waits for the survivor for 3 s
        driver.unstage(volume)
        delete_until(driver, volume)
    finally:
        _, text = late.communicate("now\n")
    assert late.returncode != 0 and "not connected" in text


def other_mounts_of(path):
    """As the kubelet does: mounts with the device and the root of the last mount that contains the path."""
    table = [line.split()[2:5] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    n = max(i for i, (_, _, at) in enumerate(table) if Path(at) in (path, *path.parents))
    device, root, at = table[n]
    whole = str(Path(root) / path.relative_to(at))
    return [other for i, (d, r, other) in enumerate(table) if i != n and (d, r) == (device, whole)]


@pytest.mark.parametrize("access", ["bind", "fuse"])
def test_the_kubelet_finds_no_other_mount_of_a_staged_volume_and_so_unstages_it(driver, bucket, access):
    volume, _ = create(driver, bucket, access)
    driver.unpublish(volume)
    assert volume in Path("/proc/self/mountinfo").read_text()
    assert other_mounts_of(driver.staging(volume)) == []
    assert driver.client.call("NodeGetVolumeStats", volume_id=volume, volume_path=str(driver.staging(volume))).usage
    driver.unstage(volume)
    driver.staging(volume).rmdir()  # as the kubelet


@pytest.mark.parametrize("way", ["write", "store"])
def test_a_file_that_is_still_open_for_writing_holds_the_release_until_it_is_closed(driver, bucket, way):
    volume, target = create(driver, bucket, "bind", **{"export.trigger": "OnRelease"})
    act = {"write": "f = open('log', 'wb'); print('ready', flush=True); input(); f.write(b'late')",
           "store": "import mmap; f = open('log', 'w+b'); f.truncate(4); m = mmap.mmap(f.fileno(), 4); f.close(); "
                    "print('ready', flush=True); input(); m[:] = b'late'"}[way]
    late = survivor(target, act)
    try:
        give_back(driver, volume)
        for _ in range(10):
            code, text = driver.client.fails("DeleteVolume", volume_id=volume)
            assert code == Code.FAILED_PRECONDITION and "CIS3013" in text and "open for writing" in text
            assert not contents(bucket)
            time.sleep(0.1)
    finally:
        _, text = late.communicate("now\n")
    assert late.returncode == 0, text
    delete_until(driver, volume)
    assert contents(bucket) == {"log": b"late"}


def test_a_sealed_volume_is_writable_again_for_the_next_pod(driver, bucket):
    volume, target = create(driver, bucket, "bind", **{"export.trigger": "OnRelease"})
    (target / "first").write_text("first")
    (bucket / "first").write_text("another's")  # conflict: fail
    give_back(driver, volume)
    wait_for(lambda: driver.client.fails("DeleteVolume", volume_id=volume)[0] == Code.FAILED_PRECONDITION)
    (bucket / "first").unlink()
    driver.stage(volume)
    (driver.publish(volume) / "second").write_text("second")
    give_back(driver, volume)
    delete_until(driver, volume)
    assert contents(bucket) == {"first": b"first", "second": b"second"}


@pytest.mark.parametrize("access", ["bind", "fuse"])
def test_a_full_volume_is_enospc_for_its_writer_alone_and_each_byte_of_it_is_exported(driver, bucket, access):
    other = driver.client.create("other", access=access).volume_id
    driver.stage(other)
    volume, target = create(driver, bucket, access)
    (target / "early").write_bytes(b"early")
    with open(target / "large", "wb", buffering=0) as file, pytest.raises(OSError) as full:
        while file.tell() < 256 * MIB:
            file.write(bytes(MIB))
    assert full.value.errno == errno.ENOSPC
    (driver.publish(other) / "file").write_bytes(bytes(8 * MIB))
    os.unlink(target / "early")
    written = contents(target)
    assert list(written) == ["large"] and len(written["large"]) > 16 * MIB
    give_back(driver, volume)
    delete_until(driver, volume)
    assert contents(bucket) == written
    driver.unpublish(other)
    driver.unstage(other)
    driver.delete(other)


def test_a_bind_mount_of_a_volume_with_a_project_quota_is_refused_to_writers(driver):
    volume = driver.client.create("pvc", access="bind").volume_id
    record = driver.folder_of(volume) / "volume.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"backend": "quota", "project": 7}))
    driver.staging(volume).mkdir(parents=True)
    code, text = driver.client.fails("NodeStageVolume", volume_id=volume, volume_capability=capability(),
                                     staging_target_path=str(driver.staging(volume)))
    assert code == Code.INVALID_ARGUMENT and "CIS2030" in text
    record.write_text(json.dumps(json.loads(record.read_text()) | {"backend": "loop", "project": 0}))
    driver.delete(volume)


def reboot(driver):
    """Without a word of the kubelet: processes and mounts are gone, the disk is there."""
    driver.kill()
    end_all(f"{driver.folder}/")
    for path in reversed([m for m in mounts() if m.startswith(f"{driver.folder}/")]):
        subprocess.run(["umount", path], check=True)
    driver.start()


@pytest.mark.timeout(600)
def test_each_change_is_in_the_bucket_after_kills_of_driver_and_keeper_and_a_reboot(driver, bucket):
    rng, killed = random.Random(KILLS), 0
    volume, target = create(driver, bucket, "bind")
    for pod in range(3):
        writer = subprocess.Popen([sys.executable, WRITER, target, str(pod)])
        try:
            for _ in range(KILLS // 3):
                time.sleep(rng.uniform(0, 0.4))
                for keeper in driver.keeper_pids():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(keeper, signal.SIGKILL)
                driver.kill()
                killed += 1
                time.sleep(rng.uniform(0, 0.2))
                driver.start()
            assert writer.poll() is None
        finally:
            writer.kill()
            writer.wait()
        written = contents(target)
        if pod == 1:
            reboot(driver)
        give_back(driver, volume)
        if pod < 2:
            driver.stage(volume)
            target = driver.publish(volume)
            assert contents(target) == written
    delete_until(driver, volume)
    assert killed >= KILLS // 3 * 3 and len(written) > 10
    sent = contents(bucket)
    assert {name: sent.get(name) for name in written} == written
