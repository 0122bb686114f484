# SPDX-License-Identifier: Apache-2.0
"""A node's driver with the Nth call to the system failing, once: it says so and is started again, or it carries the order
out all the same, by itself. CISTERN_FAIL_EVERY=1 fails every call; without it one is drawn by CISTERN_SEED."""
import errno
import json
import os
import random
import time

import grpc
import pytest

from integration.csi.driver import MIB, mounts, wait_for
from paths import BUILD
from servers.kubernetes import ApiError

from .agent import API, Node, blank

EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SEED = int(os.environ.get("CISTERN_SEED", "1"))
PATIENCE = 60  # the agent asks again after a while that grows
TRASH_PATIENCE = 90  # what could not be removed is tried again after a minute


def insist(step):
    """As the kubelet does."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return step()
        except grpc.RpcError as e:
            assert e.details() and time.monotonic() < end, e
            time.sleep(0.1)


def walk(node, orders, name):
    made = node.pools["default"] / "cistern.json"
    wait_for(made.exists, PATIENCE)  # the API server is asked first
    uuid = json.loads(made.read_text())["uuid"]
    orders.wait_for_pool(lambda p: p["status"].get("poolUUID") == uuid, seconds=PATIENCE)
    volume = orders.order(name, size=32 * MIB, **blank())
    orders.wait(name, "Provisioned", "True", seconds=PATIENCE)
    insist(lambda: node.stage(volume))
    path = insist(lambda: node.publish(volume))
    (path / "result").write_text("words")
    assert (path / "result").read_text() == "words"
    insist(lambda: node.unpublish(volume))
    insist(lambda: node.unstage(volume))
    orders.release(name, discard=True)
    orders.wait_phase(name, "Released", seconds=PATIENCE)
    orders.forget(name)
    wait_for(lambda: not [m for m in mounts() if str(node.folder) in m] and not [
        p for part in ("volumes", "making", "trash") for p in (node.pools["default"] / part).iterdir()], TRASH_PATIENCE)


def start(node):
    """As often as it says that it cannot: the kubelet starts it again."""
    for _ in range(3):
        try:
            return node.start()
        except AssertionError:
            assert node.process.returncode and node.process.returncode > 0, node.log_text()[-3000:]
            assert "cisternd: " in node.log_text() or "level=error" in node.log_text(), node.log_text()[-3000:]
    raise AssertionError(node.log_text()[-3000:])


def hurt(folder, cluster, **fail):
    folder.mkdir()
    # gRPC's server listens no more after an accept that fails, and aborts without an eventfd: a defect of gRPC.
    env = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_PROGRAM": "cisternd",
           "CISTERN_FAIL_NOT": "libgrpc", "CISTERN_FAIL_ONCE": str(folder / "failed")} | {f"CISTERN_FAIL_{k}": str(v) for k, v in fail.items()}
    return Node(folder, kubeconfig=cluster.kubeconfig, env=env)


def forget_pool(orders):
    """Of the node before: else its pool would be waited for."""
    try:
        orders.cluster.delete(f"{API}/cisternpools/{orders.node}.default")
    except ApiError:
        pass


def run(node, orders, name):
    try:
        forget_pool(orders)
        start(node)
        walk(node, orders, name)
        code = node.stop()
        assert code == 0, f"exit {code}: {node.log_text()[-3000:]}"
    finally:
        node.clean_up()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_nodes_driver_outlives_the_failure_of_any_one_call(folder, cluster, orders, number):
    count = folder / "count"
    run(hurt(folder / "whole", cluster, COUNT=count), orders, "pvc-whole")
    total = int(count.read_text())
    assert total > 100, "the harness does not see the calls"
    drawn = [random.Random(f"{SEED} {number}").randint(1, total)]
    for n in range(1, total + 1, EVERY) if EVERY else drawn:
        try:
            run(hurt(folder / f"n{n}", cluster, AT=n, ERRNO=number), orders, f"pvc-{n}")
        except AssertionError as e:
            raise AssertionError(f"call {n} of {total}, {errno.errorcode[number]}: {e}") from e


def test_a_release_of_which_the_last_flushes_fail_leaves_nothing(folder, cluster, orders):
    count = folder / "count"
    run(hurt(folder / "whole", cluster, COUNT=count, NAME="fsync"), orders, "pvc-flushed")
    total = int(count.read_text())
    for n in (total - 1, total):
        run(hurt(folder / f"n{n}", cluster, AT=n, NAME="fsync"), orders, f"pvc-flush-{n}")
