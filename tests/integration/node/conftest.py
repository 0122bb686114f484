# SPDX-License-Identifier: Apache-2.0
import tempfile
from pathlib import Path

import pytest

from paths import TOP
from servers.kubernetes import ApiError, Kubernetes

from .agent import API, Kubelet, Node, Orders, wait_for


@pytest.fixture
def folder():
    """Short, since a socket's path may have a hundred bytes; on a real disk, since pools are."""
    with tempfile.TemporaryDirectory(prefix="cistern-node-", dir="/var/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def cluster():
    with Kubernetes() as k:
        for path in sorted((TOP / "charts/cistern/templates/crds").glob("*.yaml")):
            k.kubectl("apply", "--server-side", "-f", path)

        def is_served():
            try:
                return all(k.get(f"{API}/{kind}") for kind in ("cisternvolumes", "cisternpools"))
            except ApiError:
                return False
        wait_for(is_served)
        yield k


@pytest.fixture
def orders(cluster):
    """Nothing of an earlier test is left."""
    for kind in ("cisternvolumes", "cisternpools"):
        for item in cluster.get(f"{API}/{kind}")["items"]:
            path = f"{API}/{kind}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                cluster.patch(path, {"metadata": {"finalizers": []}})
            try:
                cluster.delete(path)
            except ApiError:
                pass
    return Orders(cluster)


@pytest.fixture
def agent(folder, cluster, orders):
    n = Node(folder, kubeconfig=cluster.kubeconfig)
    try:
        yield n.start()
    finally:
        n.end()


@pytest.fixture
def node(folder):
    n = Node(folder)
    try:
        yield n.start()
    finally:
        n.end()


@pytest.fixture
def kubelet(folder):
    (folder / "plugins_registry").mkdir(exist_ok=True)
    k = Kubelet(folder / "plugins_registry")
    yield k
    k.stop()
