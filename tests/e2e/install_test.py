# SPDX-License-Identifier: Apache-2.0
"""The chart in a real cluster."""

import json
import time

from e2e.lib import ours
from e2e.lib.machine import eventually
from e2e.lib.ours import DRIVER, NAMESPACE, helm
from e2e.lib.stories import nothing_is_left
from paths import TOP


def test_driver_and_keeper_run_on_every_node_and_the_kubelet_knows_them(cluster, cistern):
    for node in cluster.nodes:
        entry = next(d for d in cluster.api.get(f"/apis/storage.k8s.io/v1/csinodes/{node}")["spec"]["drivers"]
                     if d["name"] == DRIVER)
        assert entry["nodeID"] == node and entry["topologyKeys"] == ["topology.cistern.io/node"]
        assert cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]["topology.cistern.io/node"] == node


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
        pod = cluster.pod("cistern-test", NAMESPACE)
        assert pod["status"]["phase"] == "Pending", "it is left there, for whoever asks why"
    finally:
        cluster.kubectl("delete", "pod,pvc", "cistern-test", "-n", NAMESPACE, "--ignore-not-found")
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
    pools = "/apis/cistern.io/v1alpha1/cisternpools"
    eventually(lambda: len([p for p in cluster.api.list(pools) if p.get("status", {}).get("health")]) == 2, "both pools", 60)
    ours.await_nodes(cluster)
    eventually(lambda: set(free_space(cluster)) == set(cluster.nodes), "both nodes are asked about", 60)
    assert "0" not in free_space(cluster).values(), "never 0 before it is known"
    cluster.api.delete(f"{pools}/node-b.default")  # as on a node that is new
    eventually(lambda: cluster.api.exists(f"{pools}/node-b.default"), "the node reports again", 30)
    eventually(lambda: free_space(cluster).get("node-b") not in (None, "0"), "its free space is published", 5)


def test_helm_test_passes_at_once_after_the_installation(cluster, cistern):
    began = reinstall(cluster)
    assert "Phase:          Succeeded" in helm(cluster, "test", "cistern", "--timeout", "60s")
    seconds = time.monotonic() - began
    nothing_is_left(cluster)
    assert seconds < 15, f"helm test took {seconds:.1f} s"
