# SPDX-License-Identifier: Apache-2.0
"""Upgrades, crashes, deletions and standstills of every component, under a pod that works without pause."""

import contextlib
import json
import os
import time

import pytest

from e2e.lib.machine import DEBIAN, eventually
from e2e.lib.orders import Volume, Worker, kill, pids_of, replace_pod
from e2e.lib.ours import DRIVER, NAMESPACE, drivers, install, is_ready, pods

TIMES = int(os.environ.get("CISTERN_E2E_ROLLS", "2"))  # 10 before a release
COMPONENTS = {"cisternd": "node", "cistern-keeper": "keeper"}
SOON = {"initialDelaySeconds": 1, "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 2, "terminationGracePeriodSeconds": 1}


@pytest.fixture(scope="module")
def worker(cluster, cistern):
    volume = Volume(cluster, "node-a").bind().await_condition("Provisioned")
    yield Worker(volume)
    volume.remove()


def are_new(cluster, component, before):
    """Each node's pod of this component is another than before."""
    now = pods(cluster, component)
    return all(is_ready(now[n]) and now[n]["metadata"]["uid"] != before[n]["metadata"]["uid"] for n in cluster.nodes)


def await_new(cluster, component, before):
    """The same, and each kubelet knows the driver."""
    def rolled():
        for node in cluster.nodes:
            assert DRIVER in drivers(cluster, node), f"the kubelet of {node} does not know the driver"
        return are_new(cluster, component, before)

    eventually(rolled, f"every node has a new {component} pod", 90)


@pytest.mark.parametrize("turn", range(TIMES))
def test_a_roll_of_driver_and_keeper_is_not_noticed(cluster, worker, turn):
    for component in COMPONENTS.values():
        before = pods(cluster, component)
        cluster.kubectl("rollout", "restart", f"daemonset/cistern-{component}", "-n", NAMESPACE)
        if component == "keeper":  # OnDelete: the administrator chooses the time
            cluster.kubectl("delete", "pods", "-n", NAMESPACE, "--wait=false",
                            *(pod["metadata"]["name"] for pod in before.values()))
        await_new(cluster, component, before)
        worker.go_on()


REGISTRATION = "/var/lib/kubelet/plugins_registry/csi.cistern.io-reg.sock"


def has_driver_until(cluster, holds, seconds=90):
    """Each kubelet knows the driver all the time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert all(DRIVER in drivers(cluster, node) for node in cluster.nodes)
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def slow_start(cluster):
    """Rolls to drivers that start after `seconds`; ends with a roll back."""
    seconds = 4
    tools = {"name": "tools", "hostPath": {"path": str(DEBIAN / "bin")}}
    container = {"name": "cisternd", "volumeMounts": [{"name": "tools", "mountPath": "/tools"}],
                 "command": ["/tools/busybox", "sh", "-c", f'/tools/busybox sleep {seconds}; exec cisternd "$@"', "sh"]}
    patch = {"spec": {"template": {"spec": {"volumes": [tools], "containers": [container]}}}}
    cluster.kubectl("patch", "daemonset", "cistern-node", "-n", NAMESPACE, "-p", json.dumps(patch))
    yield seconds
    before = pods(cluster, "node")
    cluster.kubectl("rollout", "undo", "daemonset/cistern-node", "-n", NAMESPACE)
    await_new(cluster, "node", before)


@pytest.fixture
def confirmed(cluster):
    """The drivers' pods, whose registrations the kubelets have confirmed."""
    for node in cluster.nodes.values():
        eventually(lambda: node.run("stat", "--format=%a", REGISTRATION).strip() == "700", f"{node.name} has confirmed the driver")
    return pods(cluster, "node")


def test_a_roll_to_a_driver_that_starts_slowly_leaves_no_node_without_one(cluster, worker, confirmed, slow_start):
    has_driver_until(cluster, lambda: are_new(cluster, "node", confirmed))
    end = time.monotonic() + slow_start + 2
    has_driver_until(cluster, lambda: time.monotonic() > end)
    worker.go_on()


@pytest.mark.parametrize("turn", range(TIMES))
def test_a_kill_of_any_program_and_the_deletion_of_its_pod_are_not_noticed(cluster, worker, turn):
    node = cluster.nodes["node-a"]
    for program in ("cistern-mount", *COMPONENTS):
        killed = kill(node, program)
        assert killed >= 1
        worker.go_on()
        # All of them: a controller's cisternd may be back before the one that holds the mounts for a dead keeper.
        eventually(lambda: len(node.run("pidof", program, check=False).stdout.split()) >= killed, f"{program} is back", 60)
        worker.go_on()
    for component in COMPONENTS.values():
        replace_pod(cluster, component, "node-a")
        worker.go_on()


def test_a_restart_of_the_kubelet_is_not_noticed(cluster, worker):
    cluster.nodes["node-a"].restart_kubelet()
    worker.go_on()
    cluster.await_nodes()


@pytest.fixture
def impatient(cluster, worker, program):
    """The program's probe asks as the chart says, and gives up within seconds instead of minutes. On a busy machine it may
    kill a program that is not frozen. So only one is impatient: mounts are lost if driver and keeper end together."""
    component = COMPONENTS[program]

    @contextlib.contextmanager
    def replaced():
        before = pods(cluster, component)
        yield
        if component == "node":
            await_new(cluster, component, before)
        else:
            replace_pod(cluster, component, "node-a")

    with replaced():
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/cistern-{component}"
        (container,) = cluster.api.get(path)["spec"]["template"]["spec"]["containers"]
        probe = {**container["livenessProbe"], **SOON}
        patch = {"spec": {"template": {"spec": {"containers": [{"name": container["name"], "livenessProbe": probe}]}}}}
        cluster.kubectl("patch", "daemonset", f"cistern-{component}", "-n", NAMESPACE, "-p", json.dumps(patch))
    yield
    with replaced():
        install(cluster)


@pytest.mark.parametrize("program", COMPONENTS)
def test_a_frozen_driver_or_keeper_is_killed_by_its_probe_and_not_noticed(cluster, worker, impatient, program):
    node, component = cluster.nodes["node-a"], COMPONENTS[program]

    def container():
        (status,) = pods(cluster, component)["node-a"]["status"]["containerStatuses"]
        return status

    before = container()["containerID"]
    argument = "--socket=" if component == "keeper" else "--role=node"
    frozen = eventually(lambda: pids_of(node, program, argument), f"{program} runs")
    node.run("kill", "-STOP", *frozen)
    worker.go_on()
    eventually(lambda: container()["containerID"] != before and container()["ready"], f"another {component} runs", 60)
    worker.go_on()
    assert kill(node, "cistern-mount") == 1
    worker.go_on()
