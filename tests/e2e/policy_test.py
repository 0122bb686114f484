# SPDX-License-Identifier: Apache-2.0
"""The NetworkPolicies, enforced: Cistern's own traffic works, and no other client connects."""

import pytest

from e2e.lib.machine import DEBIAN, eventually
from e2e.lib.ours import NAMESPACE, pods
from e2e.lib.policies import enforced
from e2e.lib.stories import nothing_is_left


@pytest.fixture(scope="module")
def rules(cluster, cistern):
    with enforced(cluster):
        yield


def test_a_claim_is_filled_and_exported_under_them(cluster, store, team, rules):
    bucket, home = store.bucket({"a": b"1"}), store.bucket()
    team.apply(team.source("set", f"s3://{bucket}/", export={"uri": f"s3://{home}/", "settle": "0s"}),
               team.claim("set", "set", size="64Mi"), team.pod("train", "set", "cp /data/a /data/b; sync; sleep 3600"))
    team.await_pod("train")
    team.delete("pod/train", "pvc/set")
    nothing_is_left(cluster)
    assert store.keys(home) == {"b"}


def reaches(cluster, pod, address, port):
    return cluster.exec(pod, "sh", "-c", f"nc -w 2 {address} {port} </dev/null", namespace=NAMESPACE, check=False).returncode == 0


def test_foreign_pod_reaches_only_metrics(cluster, rules):
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"},
                   "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
                            "containers": [{"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
                                            "command": ["sleep", "3600"]}]}}, namespace=NAMESPACE)
    try:
        cluster.await_pod("stranger", namespace=NAMESPACE)
        controller = next(iter(pods(cluster, "controller").values()))["status"]["podIP"]
        node = pods(cluster, "node")["node-a"]["status"]["podIP"]
        assert reaches(cluster, "stranger", controller, 9810) and reaches(cluster, "stranger", node, 9810)
        assert not reaches(cluster, "stranger", controller, 8443), "the broker is for Jobs and nodes"
        cluster.kubectl("label", "pod", "stranger", "-n", NAMESPACE, "app.kubernetes.io/part-of=cistern",
                        "app.kubernetes.io/component=job")
        eventually(lambda: reaches(cluster, "stranger", controller, 8443), "what keeps it out is the policy", 20)
    finally:
        cluster.kubectl("delete", "pod", "stranger", "-n", NAMESPACE, "--wait=false")


def test_keeper_has_no_network(cluster, rules):
    node = cluster.nodes["node-a"]
    keeper = node.run("pidof", "cistern-keeper").split()[0]

    def calls_the_api_server():
        return node.run("nsenter", "--target", keeper, "--net", DEBIAN / "bin/busybox", "nc", "-w", "2", cluster.control.address,
                        "6443", check=False, input="").returncode == 0

    assert not calls_the_api_server()
    node.run("nft", "flush", "table", "inet", "cistern-test-policies")
    eventually(calls_the_api_server, "the keeper reaches the API server without the policy", 20)
