# SPDX-License-Identifier: Apache-2.0
"""The chart in a real cluster."""

from e2e.lib.machine import TOP, eventually
from e2e.lib.ours import DRIVER, NAMESPACE, drivers, is_ready, pods


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
