# SPDX-License-Identifier: Apache-2.0
"""The driver with the Nth system call failing, in itself and in each of its children. Each CSI call gets a reply or an
error, no process crashes, and a healthy driver finishes the interrupted work. CISTERN_FAIL_EVERY=1 fails every call;
without it a few are drawn by CISTERN_SEED."""
import errno
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import grpc
import pytest

from paths import BUILD

from .driver import MIB, Driver, mounts, wait_for

EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SEED = int(os.environ.get("CISTERN_SEED", "1"))
DRAWN = 1
ERRORS = [errno.EIO, errno.ENOSPC, errno.EMFILE]
# gRPC's server stops listening after a failed accept and aborts without an eventfd; Cistern cannot change that.
FAILING = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_NOT": "libgrpc"}


def make_source(folder):
    source = folder / "bucket" / "in"
    source.mkdir(parents=True)
    for i in range(5):
        (source / f"object-{i}").write_bytes(random.Random(i).randbytes(i * 1000))
    return source


class Walk:
    """A volume's whole way. Each step is asked for until `patience` is over."""

    def __init__(self, driver, source, patience):
        self.driver, self.source, self.patience, self.volume = driver, source, patience, None

    def insist(self, step):
        end = time.monotonic() + self.patience
        while True:
            try:
                return step()
            except grpc.RpcError as e:
                # Unavailable without a sentence: it ended, or does not answer.
                assert e.details() or e.code() == grpc.StatusCode.UNAVAILABLE
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def go(self):
        driver, out = self.driver, self.source.parent / "out"
        self.volume = self.insist(lambda: driver.client.create("pvc", size=32 * MIB, access="bind", uri=f"file://{self.source}/", **{
            "export.uri": f"file://{out}/", "export.settle": "0s", "export.conflict": "overwrite"})).volume_id
        self.insist(lambda: driver.stage(self.volume))
        target = driver.target(self.volume)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.insist(lambda: driver.client.call("NodePublishVolume", timeout=10, **driver.publish_fields(self.volume)))
        with pytest.raises(grpc.RpcError):  # whatever fails: what is published is not taken away
            driver.unstage(self.volume)
        found = {p.name: p.read_bytes() for p in target.iterdir() if p.name.startswith("object-")}
        assert found == {p.name: p.read_bytes() for p in self.source.iterdir()}
        (target / "result").write_text("words")
        self.insist(lambda: driver.unpublish(self.volume))
        self.insist(lambda: driver.unstage(self.volume))
        self.insist(lambda: driver.delete(self.volume))
        assert (out / "result").read_text() == "words"


def start_hurt(driver):
    """False: it says that it cannot, which is an answer too."""
    try:
        driver.start()
        return True
    except AssertionError:
        assert driver.process.returncode and driver.process.returncode > 0, driver.log_text()[-3000:]
        assert "cisternd: " in driver.log_text() or "level=error" in driver.log_text(), driver.log_text()[-3000:]
        return False


def volumes_and_mounts_left(driver):
    pool = driver.pools["default"]
    return driver.client.call("ListVolumes").entries or [m for m in mounts() if str(driver.folder) in m] or [
        p for part in ("volumes", "making", "trash") for p in (pool / part).iterdir()]


@pytest.fixture(scope="module")
def total():
    """The calls of a healthy driver, from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="cistern-csi-", dir="/var/tmp", ignore_cleanup_errors=True) as path:
        return count_calls(Path(path))


def count_calls(folder):
    count = folder / "count"
    whole = Driver(folder / "whole", env=FAILING | {"CISTERN_FAIL_COUNT": str(count)})
    try:
        whole.start()
        Walk(whole, make_source(folder / "whole"), 30).go()
        assert whole.stop() == 0
    finally:
        whole.clean_up()
    total = int(count.read_text())
    assert total > 200, "the harness does not see the calls"
    return total


def hurt_and_heal(folder, n, number):
    hurt = FAILING | {"CISTERN_FAIL_AT": str(n), "CISTERN_FAIL_ERRNO": str(number)}
    driver = Driver(folder / f"n{n}", env=hurt)
    try:
        source = make_source(driver.folder)
        if start_hurt(driver):
            try:
                Walk(driver, source, 4).go()
            except (grpc.RpcError, OSError):
                pass
        assert driver.stop(signal.SIGTERM) >= 0, f"call {n}: {driver.log_text()[-3000:]}"
        driver.env = {}
        driver.start()
        Walk(driver, source, 60).go()
        wait_for(lambda: not volumes_and_mounts_left(driver))
    finally:
        driver.clean_up()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", ERRORS)
def test_the_driver_survives_the_failure_of_any_one_call(folder, total, number):
    drawn = sorted(random.Random(f"{SEED} {number}").sample(range(1, total + 1), DRAWN))
    for n in range(1, total + 1, EVERY) if EVERY else drawn:
        hurt_and_heal(folder, n, number)
