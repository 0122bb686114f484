# SPDX-License-Identifier: Apache-2.0
"""csi-sanity against a controller and a node that are the real ones, each a process of its own, with a real API server
between them: orders, releases and capacity have to mean the same to both."""

import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

import pytest
from driver import CACHE, MIB
from test_sanity import is_not_ours

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "node"))
from agent import Node, Orders  # noqa: E402


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
    node.stop()
    node.clean_up()


def test_csi_sanity_passes_over_two_processes_and_an_api_server(cluster, agent, folder, controllers):
    Orders(cluster).wait_for_pool()
    controller = controllers()
    parameters, mutable, report = folder / "parameters.yaml", folder / "mutable.yaml", folder / "junit.xml"
    parameters.write_text("access: bind\n")
    mutable.write_text('concurrency: "32"\n')
    out = subprocess.run(
        [CACHE / "bin" / "csi-sanity", f"--csi.endpoint=unix://{agent.socket}",
         f"--csi.controllerendpoint=unix://{controller.socket}", f"--csi.mountdir={folder / 'mount'}",
         f"--csi.stagingdir={folder / 'stage'}", f"--csi.testvolumesize={32 * MIB}",
         f"--csi.testvolumeexpandsize={64 * MIB}", f"--csi.testvolumeparameters={parameters}",
         f"--csi.testvolumemutableparameters={mutable}", f"--ginkgo.junit-report={report}", "--ginkgo.no-color"],
        capture_output=True, text=True, timeout=280)
    assert out.returncode == 0, out.stdout[-9000:]
    cases = [(c.get("name"), c.get("status")) for c in ElementTree.parse(report).getroot().iter("testcase")
             if c.get("name").startswith("[It]")]
    assert [name for name, status in cases if status not in ("passed", "skipped", "pending")] == []
    assert [name for name, status in cases if status == "skipped" and not is_not_ours(name)] == [
        f"[It] {name}" for name in ASKED_AT_THE_NODE]
    assert sum(status == "passed" for _, status in cases) >= 55
    assert cluster.get("/apis/cistern.io/v1alpha1/cisternvolumes")["items"] == []
