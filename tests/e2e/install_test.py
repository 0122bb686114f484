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


def test_the_kubelet_never_loses_the_driver_while_its_pods_roll(cluster, cistern):
    before = pods(cluster, "node")
    cluster.kubectl("rollout", "restart", "daemonset/cistern-node", "-n", NAMESPACE)

    def rolled():
        for node in cluster.nodes:
            assert DRIVER in drivers(cluster, node), f"{node} lost the driver"
        now = pods(cluster, "node")
        return all(is_ready(now[n]) and now[n]["metadata"]["uid"] != before[n]["metadata"]["uid"] for n in cluster.nodes)

    eventually(rolled, "every node has a new driver pod", 60)


def test_what_kubectl_applies_is_accepted_by_the_api_server(cluster, cistern):
    # Names that the release has already: nothing is changed, everything is checked, unknown fields are refused.
    done = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", TOP / "deploy/kubernetes/cistern.yaml",
                           check=False)
    assert done.returncode == 0, done.stderr
