# SPDX-License-Identifier: Apache-2.0
"""The power is cut while volumes are made, filled, grown and deleted. After it the disk has each change that was
answered OK, other calls can be repeated, and no byte is reserved twice or lost."""
import json
import os
import shutil
import subprocess
import threading
import time

import grpc
import pytest

from integration.lib.power import CUTS, PATIENCE, Machine, hashed_bucket, hashes
from paths import BUILD
from servers.bucket import KEYS

from .driver import MIB, Driver, wait_for

pytestmark = pytest.mark.timeout(600 + 150 * CUTS)
GONE = None


class PoweredDriver(Driver):
    """A cisternd on a machine whose power can be cut; its pool is on the machine's disk."""

    def __init__(self, folder, machine):
        super().__init__(folder, pools=(), env=KEYS)
        self.machine = machine
        self.pools = {"default": machine.disk / "pool"}

    def start(self):
        shutil.rmtree(self.state, ignore_errors=True)  # /run does not outlive a power loss
        self.socket.unlink(missing_ok=True)
        self.machine.run("mkdir", "-p", *self.pools.values())
        with open(self.log, "ab") as log:
            self.process = self.machine.start(
                BUILD / "bin/cisternd", f"--endpoint=unix://{self.socket}", f"--state={self.state}", "--node-id=node-1",
                "--log-level=debug", "--reserve-percent=0", f"--pool=default={self.pools['default']}", stderr=log,
                stdin=subprocess.DEVNULL, env=os.environ | self.env)
        self.wait_until_it_answers()
        return self

    def has_lost_power(self):
        self.process.wait(PATIENCE)
        self.client.close()
        self.client = None

    def data(self, volume_id):
        return self.machine.path(self.pools["default"] / "volumes" / volume_id / "data")

    def available(self):
        return self.client.call("GetCapacity").available_capacity


@pytest.fixture
def machine(folder, request):
    with Machine(folder, request.node.name) as machine:
        yield machine


@pytest.fixture
def driver(folder, machine):
    return PoweredDriver(folder, machine)


# ---- volumes ----------------------------------------------------------------------------------------------------------


class Owner:
    """Makes, fills, grows and deletes volumes, one call after the other, and records the answers."""

    def __init__(self, driver):
        self.driver = driver
        self.volumes = {}  # name: {id, size, note} that were answered, or GONE
        self.asked = None  # (name, size or GONE) under way
        self.dice = driver.machine.dice

    def one_call(self):
        name = f"volume-{self.dice.randrange(4)}"
        volume = self.volumes.get(name, GONE)
        if volume is GONE:
            self.create(name, self.dice.choice([32, 48]) * MIB)
        elif self.dice.random() < 0.4:
            self.grow(name, volume["size"] + self.dice.choice([8, 16]) * MIB)
        else:
            self.delete(name)

    def create(self, name, size):
        self.asked = (name, size)
        made = self.driver.client.create(name, size=size, access="bind")
        self.volumes[name] = {"id": made.volume_id, "size": made.capacity_bytes, "note": None}
        self.asked = None
        note = os.urandom(5000)
        path = self.driver.data(made.volume_id) / "note"
        with open(path, "wb") as f:
            f.write(note)
            os.fsync(f.fileno())
        self.volumes[name]["note"] = note
        self.driver.stage(made.volume_id)

    def grow(self, name, size):
        self.asked = (name, size)
        volume = self.volumes[name]["id"]
        grown = self.driver.client.call("NodeExpandVolume", volume_id=volume, capacity_range={"required_bytes": size},
                                        volume_path=str(self.driver.staging(volume)))
        self.volumes[name]["size"] = grown.capacity_bytes
        self.asked = None

    def delete(self, name):
        self.asked = (name, GONE)
        self.driver.unstage(self.volumes[name]["id"])
        self.driver.delete(self.volumes[name]["id"])
        self.volumes[name] = GONE
        self.asked = None

    def work(self):
        """Until the power goes."""
        try:
            while True:
                self.one_call()
        except (grpc.RpcError, OSError) as e:
            self.last = e

    def compare_and_record(self):
        """Compares the volumes on disk with the recorded answers, then records the state on disk."""
        there = {e.volume.volume_id: e.volume.capacity_bytes for e in self.driver.client.call("ListVolumes").entries}
        for name, volume in list(self.volumes.items()):
            asked = self.asked and self.asked[0] == name
            if volume is GONE or (asked and self.asked[1] is GONE and volume["id"] not in there):
                self.volumes[name] = GONE
                continue
            size = there.pop(volume["id"], 0)
            assert size == volume["size"] or (asked and size == self.asked[1]), f"{name}: {size} of {volume}"
            volume["size"] = size
            again = self.driver.client.create(name, size=size, access="bind")
            assert (again.volume_id, again.capacity_bytes) == (volume["id"], size)
            if volume["note"]:
                assert (self.driver.data(volume["id"]) / "note").read_bytes() == volume["note"]
            self.driver.stage(volume["id"])
        if self.asked and self.asked[1] is not GONE and len(there) == 1 and not self.volumes.get(self.asked[0]):
            again = self.driver.client.create(*self.asked, access="bind")
            self.driver.stage(again.volume_id)
            self.volumes[self.asked[0]] = {"id": again.volume_id, "size": again.capacity_bytes, "note": None}
            there.pop(again.volume_id)  # the same one, not a second
        assert not there, "a volume that nobody asked for"
        self.asked = None


def test_no_promise_is_lost_or_doubled(driver, machine):
    machine.on()
    driver.start()
    at_first = driver.available()
    owner = Owner(driver)
    for _ in range(CUTS):
        worker = threading.Thread(target=owner.work)
        worker.start()
        time.sleep(machine.dice.uniform(0.05, 1.0))
        machine.cut()
        driver.has_lost_power()
        worker.join(PATIENCE)
        machine.on()
        driver.start()
        owner.compare_and_record()
        promised = sum(v["size"] for v in owner.volumes.values() if v)
        wait_for(lambda: abs(at_first - promised - driver.available()) < 2 * MIB)  # trash is emptied by the by
    for name, volume in owner.volumes.items():
        if volume:
            owner.delete(name)
    wait_for(lambda: at_first - driver.available() < 2 * MIB)
    assert not list(machine.path(driver.pools["default"] / "making").iterdir())


# ---- their data ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source():
    with hashed_bucket("d/s:400:20Ki", "d/l:1:17Mi") as server:
        yield server


def test_a_volume_is_called_complete_only_with_its_data(driver, machine, source):
    """The catalog and the journal are on one file system, the data on another."""
    complete = kept = 0
    asked = {"uri": "s3://bench/d/", "endpoint": source.url, "pathStyle": "true", "bandwidth": "40M", "hydration": "none"}
    machine.on()
    driver.start()
    for number, moment in enumerate(machine.moments(lambda: kept > complete)):
        volume = driver.client.create(f"volume-{number}", size=96 * MIB, **asked).volume_id
        folder = driver.pools["default"] / "volumes" / volume
        command = [BUILD / "bin/cistern", "hydrate", "--volume", folder, "--barrier", "20ms"]
        run = machine.start(*command, env=os.environ | KEYS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        was_done = machine.cut_after(run, lambda: source.stats()["requests"], moment, len(source.want))
        driver.has_lost_power()
        machine.on()
        driver.start()
        driver.client.create(f"volume-{number}", size=96 * MIB, **asked)  # mounts it
        source.fault("op=any,key=d/*,do=status:403", "op=list,do=status:403")
        alone = machine.run(*command, "--json", env=os.environ | KEYS)
        assert alone.returncode == 0 or not was_done, "it had said that all is done"
        if alone.returncode == 0:
            assert hashes(driver.data(volume)) == source.want, "complete, without its data"
            complete += 1
        source.no_faults()
        healed = machine.run(*command, "--json", env=os.environ | KEYS)
        assert healed.returncode == 0, healed.stdout + healed.stderr
        assert hashes(driver.data(volume)) == source.want
        ended = next(json.loads(line) for line in healed.stdout.splitlines() if '"summary"' in line)
        kept += ended["requests"] < len(source.want)
        driver.delete(volume)
    assert complete and kept > complete, f"{complete} complete, {kept} kept: the moments prove nothing"
