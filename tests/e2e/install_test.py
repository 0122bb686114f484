# SPDX-License-Identifier: Apache-2.0
"""The chart in a real cluster."""

import json
import os
import time

import yaml

from e2e.lib import ours
from e2e.lib.machine import eventually
from e2e.lib.ours import DRIVER, NAMESPACE, helm
from e2e.lib.stories import nothing_is_left
from paths import TOP

POOLS = "/apis/cistern.io/v1alpha1/cisternpools"


def test_driver_and_keeper_run_on_every_node_and_the_kubelet_knows_them(cluster, cistern):
    for node in cluster.nodes:
        entry = next(d for d in cluster.api.get(f"/apis/storage.k8s.io/v1/csinodes/{node}")["spec"]["drivers"]
                     if d["name"] == DRIVER)
        assert entry["nodeID"] == node and entry["topologyKeys"] == ["topology.cistern.io/node"]
        assert cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]["topology.cistern.io/node"] == node


def has_pods(cluster, node):
    return any(node in ours.pods(cluster, component) for component in ("node", "keeper"))


def test_a_node_that_is_not_chosen_is_left_alone_and_one_that_joins_later_has_free_space(cluster, cistern):
    cluster.kubectl("label", "node", "node-b", "cistern.io/pool-")
    try:
        eventually(lambda: not has_pods(cluster, "node-b"), "its pods end", 60)
        assert DRIVER in ours.drivers(cluster, "node-a")
        cluster.api.delete(f"{POOLS}/node-b.default")  # as if it had never been there
    finally:
        cluster.kubectl("label", "node", "node-b", "cistern.io/pool=default")
        ours.await_nodes(cluster)
    eventually(lambda: cluster.api.exists(f"{POOLS}/node-b.default"), "it reports", 30)
    eventually(lambda: free_space(cluster).get("node-b") not in (None, "0"), "its free space is published", 5)


def test_a_laptop_has_a_plain_directory_and_its_pool_is_served_when_it_is_there(cluster, store, team):
    values = yaml.safe_load((TOP / "deploy/examples/laptop/values.yaml").read_text())
    path = values["pools"][0]["path"]
    values.pop("image")
    helm(cluster, "uninstall", "cistern", "--wait")
    cluster.kubectl("delete", "cisternpools", "--all")
    ours.install(cluster, **values)
    try:
        ours.await_nodes(cluster)
        said = eventually(lambda: [p["status"]["health"] for p in cluster.api.list(POOLS)], "the pods run and report", 60)[0]
        assert said["status"] == "Unhealthy" and path in said["reason"] and "CIS2048" in said["reason"], said
        for node in cluster.nodes.values():
            node.run("mkdir", path)
        eventually(lambda: {p["status"]["health"]["status"] for p in cluster.api.list(POOLS)} == {"Healthy"}, "it is served", 30)
        eventually(lambda: set(free_space(cluster).values()) - {"0"}, "its free space is published", 5)
        team.apply(team.source("set", f"s3://{store.bucket({'file': b'content'})}/"), team.claim("data", "set", size="64Mi"),
                   team.pod("reader", "data", "cat /data/file"))
        team.await_pod("reader", "Succeeded")
        assert team.logs("reader") == "content"
        team.remove()
        nothing_is_left(cluster)
    finally:
        helm(cluster, "uninstall", "cistern", "--wait")
        cluster.kubectl("delete", "cisternpools", "--all")
        for node in cluster.nodes.values():
            node.run("rm", "-rf", os.path.dirname(path))
        ours.install(cluster)
        ours.await_nodes(cluster)


def test_the_api_server_accepts_the_plain_manifest(cluster, cistern):
    # Names that the release has already: nothing is changed, everything is checked, unknown fields are refused.
    done = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", TOP / "deploy/kubernetes/cistern.yaml",
                           check=False)
    assert done.returncode == 0, done.stderr


def test_helm_test_passes_where_volumes_are_made_and_fails_where_they_are_not(cluster, cistern):
    kind = cluster.api.get("/apis/storage.k8s.io/v1/storageclasses/cistern")
    cluster.kubectl("delete", "storageclass", "cistern")
    try:
        done = helm(cluster, "test", "cistern", "--timeout", "8s", check=False)
        assert done.returncode != 0 and "Phase:          Failed" in done.stdout + done.stderr, done
        pod, = cluster.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=job-name%3Dcistern-test")
        assert pod["status"]["phase"] == "Pending", "it is left there, for whoever asks why"
    finally:
        cluster.kubectl("delete", "job,pvc", "cistern-test", "-n", NAMESPACE, "--ignore-not-found")
        kind["metadata"].pop("resourceVersion")
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(kind))
    assert "Phase:          Succeeded" in helm(cluster, "test", "cistern", "--timeout", "90s")
    nothing_is_left(cluster)


def reinstall(cluster):
    """As in a cluster that never had it: no process waits until a lease of the last one expires."""
    helm(cluster, "uninstall", "cistern", "--wait")
    cluster.kubectl("delete", "leases", "--all", "-n", NAMESPACE)
    ours.install(cluster)
    return time.monotonic()


def free_space(cluster):
    """Bytes by node, of the class "cistern", as the scheduler sees them."""
    return {c["nodeTopology"]["matchLabels"]["topology.cistern.io/node"]: c["capacity"]
            for c in cluster.api.list(f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities")
            if c["storageClassName"] == "cistern"}


def test_free_space_is_published_within_seconds_of_the_pools(cluster, cistern):
    reinstall(cluster)
    eventually(lambda: len([p for p in cluster.api.list(POOLS) if p.get("status", {}).get("health")]) == 2, "both pools", 60)
    ours.await_nodes(cluster)
    eventually(lambda: set(free_space(cluster)) == set(cluster.nodes), "the free space of both nodes is published", 5)
    assert "0" not in free_space(cluster).values(), "never 0 before it is known"
    cluster.api.delete(f"{POOLS}/node-b.default")  # as on a node that is new
    eventually(lambda: cluster.api.exists(f"{POOLS}/node-b.default"), "the node reports again", 30)
    eventually(lambda: free_space(cluster).get("node-b") not in (None, "0"), "its free space is published", 5)


def test_helm_test_passes_at_once_after_the_installation(cluster, cistern):
    began = reinstall(cluster)
    assert "Phase:          Succeeded" in helm(cluster, "test", "cistern", "--timeout", "60s")
    seconds = time.monotonic() - began
    nothing_is_left(cluster)
    assert seconds < 15, f"helm test took {seconds:.1f} s"
