# SPDX-License-Identifier: Apache-2.0
"""csi-sanity against a controller and a node that are the real ones, each a process of its own, with a real API server
between them: orders, releases and capacity have to mean the same to both."""

import pathlib
import tempfile

import pytest

from integration.csi.sanity import names_of, run_sanity
from integration.node.agent import Node, Orders

# csi-sanity asks the node's endpoint whether there is a Controller, which is at the other one.
ASKED_AT_THE_NODE = ["Node Service should work", "Node Service should be idempotent"]


@pytest.fixture
def folder():
    """Short, since a socket's path may have a hundred bytes; on a real disk, since pools are."""
    with tempfile.TemporaryDirectory(prefix="cistern-control-", dir="/var/tmp", ignore_cleanup_errors=True) as path:
        yield pathlib.Path(path)


@pytest.fixture
def agent(folder, cluster, clean):
    cluster.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    node = Node(folder, kubeconfig=cluster.kubeconfig)
    yield node.start()
    node.end()


def test_csi_sanity_passes_over_two_processes_and_an_api_server(cluster, agent, folder, controllers):
    Orders(cluster).wait_for_pool()
    controller = controllers()
    cases = run_sanity(folder, "bind", agent.socket, controller.socket)
    assert names_of(cases, "skipped") == [f"[It] {name}" for name in ASKED_AT_THE_NODE]
    assert len(names_of(cases, "passed")) >= 55
    assert cluster.get("/apis/cistern.io/v1alpha1/cisternvolumes")["items"] == []
