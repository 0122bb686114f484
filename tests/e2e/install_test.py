# SPDX-License-Identifier: Apache-2.0
"""The chart in a real cluster."""

import json

from e2e.lib.ours import DRIVER, NAMESPACE, helm
from e2e.lib.stories import nothing_is_left
from paths import TOP


def test_driver_and_keeper_run_on_every_node_and_the_kubelet_knows_them(cluster, cistern):
    for node in cluster.nodes:
        entry = next(d for d in cluster.api.get(f"/apis/storage.k8s.io/v1/csinodes/{node}")["spec"]["drivers"]
                     if d["name"] == DRIVER)
        assert entry["nodeID"] == node and entry["topologyKeys"] == ["topology.cistern.io/node"]
        assert cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]["topology.cistern.io/node"] == node


def test_what_kubectl_applies_is_accepted_by_the_api_server(cluster, cistern):
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
