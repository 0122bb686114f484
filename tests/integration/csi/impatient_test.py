# SPDX-License-Identifier: Apache-2.0
"""Callers that give up before they are answered, as those of a busy machine do, and ask again until they are: each gets
its volume, filled, mounted once, exported and gone, and an abandoned call changes nothing later."""
import os
import random
import time

import grpc
import pytest

from .driver import MIB, Client, mounts, wait_for

Code = grpc.StatusCode
PASSING = {Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.ABORTED, Code.UNAVAILABLE}
SHORTEST, GROWTH = 0.001, 1.3  # what is waited for at first, and after each time that was too short
SEED = int(os.environ.get("CISTERN_SEED", "1"))


class Impatient(Client):
    """Waits so long, whatever the caller says."""

    def __init__(self, socket, patience):
        super().__init__(socket)
        self.patience = patience

    def call(self, method, timeout=None, **fields):
        return super().call(method, timeout=self.patience, **fields)


class Kubelet:
    def __init__(self, driver, dice):
        self.driver, self.dice, self.given_up = driver, dice, 0

    def insist(self, step):
        """Repeats `step` with impatient clients until it answers; returns the answer."""
        patience = SHORTEST * self.dice.uniform(1, 20)
        while True:
            client = Impatient(self.driver.socket, patience)
            try:
                return step(client)
            except grpc.RpcError as e:
                assert e.code() in PASSING, (e.code(), e.details())
                if e.code() == Code.DEADLINE_EXCEEDED:
                    self.given_up += 1
                    patience *= GROWTH
                else:
                    time.sleep(0.01)
                    patience += 0.01  # what is not filled yet is answered with a second to spare, or not at all
            finally:
                client.close()


def walk(kubelet, name, access, source, out):
    driver, parameters = kubelet.driver, {"uri": f"file://{source}/", "export.uri": f"file://{out}/", "export.settle": "0s"}
    volume = kubelet.insist(lambda c: c.create(name, size=32 * MIB, access=access, **parameters)).volume_id
    kubelet.insist(lambda c: driver.stage(volume, client=c))
    target = kubelet.insist(lambda c: driver.publish(volume, client=c))
    assert mounts().count(str(target)) == 1
    assert len([at for at in mounts() if at.startswith(str(driver.staging(volume)))]) == 1
    assert {p.name: p.read_bytes() for p in target.iterdir()} == {p.name: p.read_bytes() for p in source.iterdir()}
    (target / "result").write_text(name)
    kubelet.insist(lambda c: driver.unpublish(volume, client=c))
    assert not target.exists()
    kubelet.insist(lambda c: driver.unstage(volume, client=c))
    kubelet.insist(lambda c: driver.delete(volume, client=c))
    assert (out / "result").read_text() == name


@pytest.mark.asan
@pytest.mark.parametrize("access", ["bind", "fuse"])
def test_repeated_calls_with_short_deadlines_give_the_result_of_one_call(driver, folder, access):
    dice, source = random.Random(f"{SEED} {access}"), folder / "bucket" / "in"
    source.mkdir(parents=True)
    for i in range(5):
        (source / f"object-{i}").write_bytes(dice.randbytes(i * 10_000))
    kubelet = Kubelet(driver, dice)
    for i in range(4):
        walk(kubelet, f"pvc-{i}", access, source, folder / "bucket" / f"out-{i}")
    assert kubelet.given_up > 4, "it was not impatient enough to prove anything"
    pool = driver.pools["default"]
    wait_for(lambda: not any(list((pool / part).iterdir()) for part in ("volumes", "making", "trash")))
    assert not driver.client.call("ListVolumes").entries
    assert not [m for m in mounts() if m.startswith(f"{driver.folder}/")]
    assert not list((driver.folder / "pods" / "pod").iterdir())
