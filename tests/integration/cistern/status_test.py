# SPDX-License-Identifier: Apache-2.0
"""cistern status, over a real driver's pool and over directories that `cistern hydrate` fills."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from integration.csi.driver import Driver
from paths import BUILD, CISTERN

MIB = 1 << 20


def status(*args, code=0):
    done = subprocess.run([CISTERN, "status", "--json", *map(str, args)], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found


@pytest.fixture
def driver(tmp_path_factory):
    folder = Path(f"/var/tmp/cistern-status-{os.getpid()}")
    folder.mkdir()
    d = Driver(folder)
    yield d.start()
    d.end()
    subprocess.run(["rm", "-rf", folder], check=False)


@pytest.fixture
def bucket(tmp_path):
    folder = tmp_path / "bucket"
    folder.mkdir()
    for i in range(64):
        (folder / f"object-{i:02}").write_bytes(os.urandom(64 * 1024))
    return folder


@pytest.mark.asan
def test_volumes_are_listed_with_and_without_a_driver(driver, bucket):
    pool = driver.pools["default"]
    blank = driver.client.create("blank").volume_id
    filled = driver.client.create("filled", size=64 * MIB, uri=f"file://{bucket}/").volume_id
    wait_for(lambda: [v for v in status("--pool", pool) if v["volume"] == filled and v["phase"] == "Ready"])
    driver.kill()
    volumes = {v["volume"]: v for v in status("--pool", pool)}
    assert set(volumes) == {blank, filled}
    assert volumes[blank]["phase"] == "Ready" and volumes[blank]["name"] == "blank"
    assert volumes[filled]["objects"] == volumes[filled]["objects_total"] == 64
    assert volumes[filled]["bytes"] == 64 * 64 * 1024
    assert volumes[filled]["capacity_bytes"] == 64 * MIB
    assert [v["volume"] for v in status(filled, "--pool", pool)] == [filled]
    assert [v["volume"] for v in status(pool / "volumes" / blank)] == [blank]
    assert len(status(pool)) == 2


def test_a_pool_that_is_named_by_an_empty_variable_is_not_named():
    def said(**environment):
        return subprocess.run([CISTERN, "status"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    unset, empty = said(), said(CISTERN_POOL="")
    assert (empty.returncode, empty.stdout, empty.stderr) == (unset.returncode, unset.stdout, unset.stderr)


def test_a_volume_that_cannot_be_read_hides_no_other(driver):
    pool = driver.pools["default"]
    first, second = sorted(driver.client.create(name).volume_id for name in ("one", "two"))
    driver.kill()
    (pool / "volumes" / first / "volume.json").write_text("{")
    damaged, whole = status("--pool", pool)
    assert damaged["phase"] == "Unreadable" and damaged["error"]["id"] == "CIS2005"
    assert whole["volume"] == second and whole["phase"] == "Ready"


@pytest.fixture
def slow_store():
    """Flags for a source of 100 objects whose every answer takes a fifth of a second."""
    server = subprocess.Popen([BUILD / "tests/bucket_server", "--die-with-parent", "--objects=slow/:100:64Ki",
                               "--latency=200ms"], stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().split()[1]
    yield [f"--endpoint=http://127.0.0.1:{port}", "--anonymous", "s3://bench/slow/"]
    server.terminate()
    server.wait()
    server.stdout.close()


def test_directory_during_hydration_shows_its_progress(slow_store, tmp_path):
    target = tmp_path / "target"
    command = [CISTERN, "hydrate", "--quiet", "--concurrency=2", *slow_store, target]
    run = subprocess.Popen(command)

    def moving():
        done = subprocess.run([CISTERN, "status", "--json", target], capture_output=True, text=True, check=False)
        seen = [json.loads(line) for line in done.stdout.splitlines()]
        return [s for s in seen if s["type"] == "volume" and 0 < s["bytes"] < s["bytes_total"]]

    assert wait_for(moving)[0]["phase"] in ("Listing", "Hydrating")
    run.send_signal(signal.SIGKILL)
    run.wait(60)
    assert status(target)[0]["phase"] == "Interrupted"
    subprocess.run([CISTERN, "hydrate", "--quiet", *slow_store, target], check=True)
    assert status(target)[0]["phase"] == "Ready"


def test_directory_without_a_status_is_listing(slow_store, tmp_path):
    target = tmp_path / "target"
    run = subprocess.Popen([CISTERN, "hydrate", "--quiet", "--concurrency=2", *slow_store, target])
    state = tmp_path / ".target.cistern"
    wait_for(lambda: (state / "status.json").exists())
    run.send_signal(signal.SIGSTOP)
    (state / "status.json").unlink()
    (seen,) = status(target)
    table = subprocess.run([CISTERN, "status", target], capture_output=True, text=True, check=True).stdout
    run.send_signal(signal.SIGKILL)
    run.wait(60)
    assert "Listing" in table and "100%" not in table, table
    assert seen["phase"] == "Listing" and seen["bytes"] == seen["bytes_total"] == 0
    assert status(target)[0]["phase"] == "Interrupted"


def test_watching_repeats_the_table_until_it_is_interrupted(tmp_path):
    (tmp_path / "volumes").mkdir()
    # A shell starts its background jobs with SIGINT ignored, and this test may be part of one.
    run = subprocess.Popen([CISTERN, "status", "--watch", tmp_path], stdout=subprocess.PIPE, text=True,
                           preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert [run.stdout.readline() for _ in range(3)] == ["no volumes\n"] * 3
    run.send_signal(signal.SIGINT)
    assert run.wait(60) != 0
    run.stdout.close()


def test_no_pool_is_an_error_that_says_what_to_do(tmp_path):
    assert status("--pool", tmp_path / "none", code=3)[0]["error"]["id"] == "CIS9101"
    assert status(tmp_path, code=3)[0]["error"]["id"] == "CIS9102"
