# SPDX-License-Identifier: Apache-2.0
import pytest

from integration.lib.kube import KubeTool
from servers.api_proxy import ApiProxy
from servers.kubernetes import Kubernetes


@pytest.fixture(scope="session")
def cluster():
    with Kubernetes() as running:
        yield running


@pytest.fixture
def tool(cluster):
    with KubeTool(cluster.kubeconfig) as running:
        yield running


@pytest.fixture
def namespace(cluster, request):
    """A name of its own for each test."""
    namespace.count = getattr(namespace, "count", 0) + 1
    name = f"test-{namespace.count}"
    cluster.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def proxy(cluster):
    with ApiProxy(cluster) as running:
        yield running


@pytest.fixture
def through(proxy):
    """A tool that asks through the proxy."""
    with KubeTool(proxy.kubeconfig) as running:
        yield running
