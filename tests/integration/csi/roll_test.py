# SPDX-License-Identifier: Apache-2.0
"""Drivers and keepers of two versions follow each other, with kills, while pods work, a volume is filled and others are
exported."""

import contextlib
import os
import random
import re
import signal
import subprocess
import threading
import time

import pytest

from integration.fuse.versions_test import NEWER, TODAY, Load
from servers.bucket import KEYS, BucketServer

from .driver import MIB, Driver, command_line, has_ended, processes, wait_for
from .kill_test import insist

ROLLS = int(os.environ.get("CISTERN_ROLLS", "8"))  # 250 before it was called done
COUNT, SIZE = 400, 20_000


@pytest.fixture
def bucket():
    with BucketServer("--objects", f"in/:{COUNT}:{SIZE}") as server:
        yield server


@pytest.fixture
def driver(folder):
    d = Driver(folder, env=KEYS)
    try:
        yield d.start()
    finally:
        d.end()


def use(driver, name, **parameters):
    volume = insist(driver, lambda c: c.create(name, size=64 * MIB, access="fuse", **parameters)).volume_id
    insist(driver, lambda c: driver.stage(volume, client=c))
    return volume, insist(driver, lambda c: driver.publish(volume, client=c))


def give_up(driver, volume):
    insist(driver, lambda c: driver.unpublish(volume, client=c))
    insist(driver, lambda c: driver.unstage(volume, client=c))
    insist(driver, lambda c: driver.delete(volume, client=c), 120)


class Life:
    """Fills volumes from the bucket and sends others to it, one after another, until stop()."""

    def __init__(self, driver, bucket):
        self.driver, self.bucket, self.errors, self.turns, self.ending = driver, bucket, [], [0, 0], threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(2)]
        for t in self.threads:
            t.start()

    def fill(self, turn):
        volume, target = use(self.driver, f"in-{turn}", uri="s3://bench/in/", endpoint=self.bucket.url, bandwidth="4Mi")
        for n in range(0, COUNT, 37):
            name = f"object-{n:09}"
            assert (target / name).read_bytes() == self.bucket.content(f"in/{name}"), name
        assert len([p for p in target.iterdir() if p.is_file()]) == COUNT
        give_up(self.driver, volume)

    def export(self, turn):
        volume, target = use(self.driver, f"out-{turn}", **{"export.uri": f"s3://bench/out-{turn}/", "export.settle": "0s",
                                                            "endpoint": self.bucket.url})
        for n in range(40):
            (target / f"file-{n}").write_bytes(b"%d." % n * 20_000)
        give_up(self.driver, volume)
        for n in range(40):
            assert self.bucket.content(f"out-{turn}/file-{n}") == b"%d." % n * 20_000

    def run(self, n):
        while not self.ending.is_set() and not self.errors:
            try:
                (self.fill, self.export)[n](self.turns[n])
                self.turns[n] += 1
            except BaseException as e:
                self.errors.append(e)

    def stop(self):
        self.ending.set()
        for t in self.threads:
            t.join()
        assert self.errors == []
        assert min(self.turns) > 0


def take_over(driver, programs, dice):
    binary, program, _ = programs
    with open(driver.log, "ab") as log:
        taker = subprocess.Popen([binary, "--socket", f"{driver.state}/keeper.sock", "--mount-program", program], stderr=log)
    time.sleep(dice.uniform(0, 0.05))
    if dice.random() < 0.3:
        taker.kill()
        taker.wait()


def kill_one(word):
    for pid in processes():
        if word in command_line(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return


def is_mirrored(driver, started):
    """Whether the driver, whose log begins there, has duplicates of the descriptors of the only keeper."""
    connected = re.findall(r'event="keeper connected" pid=(\d+)', driver.log_text()[started:])
    return connected[-1:] == list(map(str, driver.keeper_pids()))


@pytest.mark.timeout(900)
def test_rolls_of_driver_and_keeper_with_kills_are_not_noticed(driver, bucket):
    dice = random.Random(ROLLS)
    volume, target = use(driver, "pvc")
    load, life = Load(target), Life(driver, bucket)
    started = 0
    for roll in range(ROLLS):
        what = dice.choice(("kill driver", "restart driver", "newer keeper", "older keeper", "kill keeper", "kill job"))
        time.sleep(dice.uniform(0, 0.5))
        if what.endswith("driver"):
            driver.kill() if what == "kill driver" else driver.stop()
            started = len(driver.log_text())
            driver.start()
        elif what == "kill keeper":
            for pid in driver.keeper_pids():
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda pid=pid: has_ended(pid))
        elif what == "kill job":
            kill_one(f"{driver.pools['default']}/volumes")
        else:
            take_over(driver, NEWER if what == "newer keeper" else TODAY, dice)
        try:
            load.goes_on()
        except AssertionError as e:
            raise AssertionError(f"roll {roll}: {what}") from e
        assert life.errors == [], f"roll {roll}: {what}: {driver.log_text()[-5000:]}"
        wait_for(lambda: is_mirrored(driver, started))  # one of the two holds the mounts at any time
    load.stop()
    life.stop()
    give_up(driver, volume)
    wait_for(lambda: not driver.client.call("ListVolumes").entries)
