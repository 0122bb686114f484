# SPDX-License-Identifier: Apache-2.0
"""Upgrades, crashes and deletions of everything that is ours, under a pod that works without pause."""

import os

import pytest

from e2e.lib.machine import eventually
from e2e.lib.orders import Volume, Worker, kill, replace_pod
from e2e.lib.ours import DRIVER, NAMESPACE, drivers, is_ready, pods

TIMES = int(os.environ.get("CISTERN_E2E_ROLLS", "2"))  # 10 before a release
COMPONENTS = {"cisternd": "node", "cistern-keeper": "keeper"}


@pytest.fixture(scope="module")
def worker(cluster, cistern):
    volume = Volume(cluster, "node-a").bind().await_condition("Provisioned")
    yield Worker(volume)
    volume.remove()


def await_new(cluster, component, before):
    """Each node's pod of this component is another than before; no kubelet loses the driver meanwhile."""
    def rolled():
        for node in cluster.nodes:
            assert DRIVER in drivers(cluster, node), f"{node} lost the driver"
        now = pods(cluster, component)
        return all(is_ready(now[n]) and now[n]["metadata"]["uid"] != before[n]["metadata"]["uid"] for n in cluster.nodes)

    eventually(rolled, f"every node has a new {component} pod", 90)


@pytest.mark.parametrize("time", range(TIMES))
def test_a_roll_of_driver_and_keeper_is_not_noticed(cluster, worker, time):
    for component in COMPONENTS.values():
        before = pods(cluster, component)
        cluster.kubectl("rollout", "restart", f"daemonset/cistern-{component}", "-n", NAMESPACE)
        if component == "keeper":  # OnDelete: whoever upgrades says when
            cluster.kubectl("delete", "pods", "-n", NAMESPACE, "--wait=false",
                            *(pod["metadata"]["name"] for pod in before.values()))
        await_new(cluster, component, before)
        worker.go_on()


@pytest.mark.parametrize("time", range(TIMES))
def test_a_kill_of_any_program_and_the_deletion_of_its_pod_are_not_noticed(cluster, worker, time):
    node = cluster.nodes["node-a"]
    for program in ("cistern-mount", *COMPONENTS):
        assert kill(node, program) >= 1
        worker.go_on()
        eventually(lambda: node.run("pidof", program, check=False).stdout.split(), f"{program} is back", 60)
    for component in COMPONENTS.values():
        replace_pod(cluster, component, "node-a")
        worker.go_on()


def test_a_restart_of_the_kubelet_is_not_noticed(cluster, worker):
    cluster.nodes["node-a"].restart_kubelet()
    worker.go_on()
    cluster.await_nodes()
