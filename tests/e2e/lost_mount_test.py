# SPDX-License-Identifier: Apache-2.0
"""The keeper and the driver of a node end at one instant, under three pods that share a volume."""

import pytest

from e2e.lib import ours
from e2e.lib.machine import eventually
from e2e.lib.orders import pids_of

NODE = "node-a"
DATA = "words that were written before\n"


def deployment(claim):
    script = f"test -s /data/file || printf '{DATA.strip()}\\n' >/data/file; sync; touch /tmp/up; exec sleep 3600"
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "three"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "three"}},
        "template": {"metadata": {"labels": {"app": "three"}}, "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE}, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
                            "command": ["sh", "-c", script],
                            "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1},
                            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}}}}


def pods(team):
    found = team.cluster.api.list(f"/api/v1/namespaces/{team.name}/pods?labelSelector=app=three")
    return {p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]
            and all(c["ready"] for c in p["status"].get("containerStatuses", [{"ready": False}]))}


def read(team, pod):
    return team.cluster.exec(pod, "cat", "/data/file", namespace=team.name, check=False)


def containers(cluster, component):
    return {s["containerID"] for s in ours.pods(cluster, component)[NODE]["status"]["containerStatuses"]}


def kill_keeper_and_driver(cluster):
    """At one instant, with the mount processes: no process is left with a descriptor of a mount."""
    node = cluster.nodes[NODE]
    victims = [*pids_of(node, "cisternd", "--role=node"), *node.run("pidof", "cistern-keeper", "cistern-mount").split()]
    before = {component: containers(cluster, component) for component in ("node", "keeper")}
    for signal in "-STOP", "-KILL":
        node.run("kill", signal, *victims, check=False)  # one may be a probe of the keeper, which ends by itself
    eventually(lambda: all(not old & containers(cluster, component) for component, old in before.items()),
               "both are started again", 60)
    ours.await_nodes(cluster)


@pytest.fixture
def three(cluster, team):
    claim = team.claim("shared", size="64Mi")
    claim["spec"]["accessModes"] = ["ReadWriteOnce"]
    team.apply(claim, deployment("shared"))
    eventually(lambda: len(pods(team)) == 3, "three pods", 90)
    old = pods(team)
    assert all(read(team, pod).stdout == DATA for pod in old)
    yield old
    team.delete("deployment/three")


def all_are_new_and_read(team, old):
    eventually(lambda: len(pods(team)) == 3 and not pods(team) & old, "three new pods", 120)
    assert {read(team, pod).stdout for pod in pods(team)} == {DATA}


def test_new_pods_have_their_data_after_keeper_and_driver_died_at_one_instant(cluster, team, three):
    kill_keeper_and_driver(cluster)
    assert {read(team, pod).returncode == 0 for pod in three} == {False}, "the mounts are lost"
    team.cluster.kubectl("rollout", "restart", "deployment/three", "-n", team.name)
    all_are_new_and_read(team, three)


def test_a_new_pod_beside_old_ones_has_its_data_after_a_reinstallation(cluster, team, three):
    ours.helm(cluster, "uninstall", "cistern", "--wait")
    ours.install(cluster)
    ours.await_nodes(cluster)
    team.cluster.kubectl("scale", "deployment/three", "--replicas=4", "-n", team.name)
    new = eventually(lambda: pods(team) - three, "a fourth pod", 120).pop()
    assert read(team, new).stdout == DATA
