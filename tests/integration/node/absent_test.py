# SPDX-License-Identifier: Apache-2.0
"""A node whose pool's disk is not mounted: the API server has a record of its pool."""
import pytest

from integration.csi.absent_test import OnDisk, stop_machine
from integration.csi.driver import wait_for

from .agent import API, Node, blank, bucket, hold_true, identity, job, replace
from .events_test import about, events


class NodeOnDisk(OnDisk, Node):
    def start(self):
        if self.keeper and self.keeper.poll() is not None:  # it went with the machine
            self.keeper = None
        return super().start()


@pytest.fixture
def agent(folder, cluster, orders):
    n = NodeOnDisk(folder, kubeconfig=cluster.kubeconfig)
    try:
        yield n.start()
    finally:
        n.end()


def forget_locally(node):
    """/var/lib/cistern was on a disk that is gone too."""
    for path in node.state.glob("pool-*"):
        path.unlink()


def write_to(agent, volume):
    agent.stage(volume)
    (agent.publish(volume) / "own").write_text("mine")
    agent.unpublish(volume)
    agent.unstage(volume)


@pytest.mark.parametrize("witness", ["CisternPool", "CisternVolume", "machine"])
def test_no_pool_is_made_while_anything_names_another_and_its_volumes_wait(agent, orders, cluster, folder, witness):
    volume = orders.make("pvc-1", onDataLoss="rehydrate", source={"uri": bucket(folder)})
    assert job("hydrate", agent.folder_of(volume)).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True")
    write_to(agent, volume)
    uuid = agent.uuid()
    stop_machine(agent)
    if witness != "machine":
        forget_locally(agent)
    if witness != "CisternPool":
        cluster.delete(f"{API}/cisternpools/node-1.default")
    if witness == "machine":
        orders.forget("pvc-1")
    agent.start()
    pool = orders.wait_for_pool(lambda p: p["status"].get("health", {}).get("status") == "Unhealthy"
                                and "CIS2045" in p["status"]["health"]["reason"])
    assert uuid in pool["status"]["health"]["reason"]
    wait_for(lambda: {("Node", "node-1"), ("CisternPool", "node-1.default")} <= about(events(cluster, "PoolUnhealthy")))
    if witness != "machine":
        assert pool["status"]["poolUUID"] == uuid, "it is remembered further on"
        c = orders.wait("pvc-1", "Healthy", "False", "PoolAbsent")
        assert uuid in c["message"] and orders.has_condition("pvc-1", "Provisioned", "True")
        hold_true(lambda: orders.has_condition("pvc-1", "Healthy", "False", "PoolAbsent"), 6)
    assert not list(agent.pool.iterdir()), "nothing is made in its place"
    agent.mount()
    orders.wait_for_pool(lambda p: p["status"]["health"]["status"] == "Healthy" and p["status"]["poolUUID"] == uuid)
    if witness != "machine":
        orders.wait("pvc-1", "Healthy", "True")
        agent.stage(volume)
        assert (agent.publish(volume) / "own").read_text() == "mine"


def test_a_new_node_asks_before_it_creates_its_pool_and_a_node_with_a_pool_does_not(agent, orders, cluster):
    volume, uuid = orders.make("pvc-1", **blank()), agent.uuid()
    stop_machine(agent)
    forget_locally(agent)
    cluster.stop_api()
    try:
        agent.start()
        wait_for(lambda: "CIS2044" in agent.log_text())
        hold_true(lambda: not list(agent.pool.iterdir()), 3)
        agent.mount()
        wait_for(lambda: f"uuid={uuid}" in agent.log_text().split("CIS2044")[-1])
        agent.stage(volume)
        agent.publish(volume)
    finally:
        cluster.start_api()


def test_an_administrators_word_must_name_the_pool_and_counts_once(agent, orders, cluster):
    volume, uuid = orders.make("pvc-1", **blank()), agent.uuid()
    write_to(agent, volume)
    stop_machine(agent)
    agent.mount()
    agent.wipe()
    replace(orders, "0123456789ab")
    agent.start()
    orders.wait_for_pool(lambda p: p["status"].get("health", {}).get("status") == "Unhealthy")
    hold_true(lambda: not (agent.pool / "cistern.json").exists(), 6)
    replace(orders, uuid)
    pool = orders.wait_for_pool(lambda p: p["status"]["health"]["status"] == "Healthy")
    second = agent.uuid()
    assert pool["status"]["poolUUID"] == second != uuid and identity(agent)["replaces"] == [{"uuid": uuid, "givenUp": True}]
    wait_for(lambda: {("Node", "node-1"), ("CisternPool", "node-1.default")} <= about(events(cluster, "PoolReplaced")))
    orders.wait_phase("pvc-1", "Lost")
    stop_machine(agent)
    agent.mount()
    agent.wipe()
    agent.start()  # the annotation is still there, and names another pool
    pool = orders.wait_for_pool(lambda p: p["status"]["health"]["status"] == "Unhealthy")
    assert pool["status"]["poolUUID"] == second and not (agent.pool / "cistern.json").exists()


def test_an_ephemeral_pool_is_replaced_and_its_volumes_are_reported_lost(agent, orders, cluster):
    volume, uuid = orders.make("pvc-1", **blank()), agent.uuid()
    write_to(agent, volume)
    stop_machine(agent)
    agent.mount()
    agent.wipe()
    agent.pools["default"] = f"{agent.pool},require-mount,ephemeral"
    agent.start()
    orders.wait_phase("pvc-1", "Lost")
    assert orders.has_condition("pvc-1", "Healthy", "False", "VolumeLost") and identity(agent)["replaces"] == [{"uuid": uuid, "givenUp": False}]
    wait_for(lambda: ("CisternVolume", "pvc-1") in about(events(cluster, "VolumeLost")))
