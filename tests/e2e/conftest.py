# SPDX-License-Identifier: Apache-2.0
"""One cluster for each process of the session; its logs are kept in build/logs/e2e if anything failed there."""

import os

import pytest

from e2e.lib import ours
from e2e.lib.cluster import Cluster
from e2e.lib.machine import TOP
from e2e.lib.stories import Namespace, Store, nothing_is_left


@pytest.fixture(scope="session")
def cluster(request):
    made = Cluster()
    try:
        yield made.up()
    finally:
        logs = TOP / "build/logs/e2e" / os.environ.get("PYTEST_XDIST_WORKER", "")
        made.down(logs if request.session.testsfailed or not hasattr(made, "seconds") else None)


@pytest.fixture(scope="session")
def images(cluster):
    """Cistern's image and the sidecars', in both nodes."""
    ours.import_images(cluster)


@pytest.fixture(scope="session")
def cistern(cluster, images):
    """The chart, installed; the driver is known to both kubelets."""
    ours.install(cluster)
    ours.await_nodes(cluster)
    return ours


@pytest.fixture(scope="session")
def store(cluster):
    with Store() as running:
        yield running


@pytest.fixture
def slow(cluster, cistern):
    """A class whose volumes are filled so slowly (256 KiB a second) that there is time to interfere."""
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"},
                   "provisioner": "csi.cistern.io", "volumeBindingMode": "WaitForFirstConsumer",
                   "allowVolumeExpansion": True, "reclaimPolicy": "Delete", "parameters": {"bandwidth": "256Ki"}})
    yield "slow"
    cluster.kubectl("delete", "storageclass", "slow", "--ignore-not-found")


@pytest.fixture
def team(cluster, cistern, store):
    """A user's namespace; after its deletion, none of its objects is left."""
    made = Namespace(cluster, store)
    yield made
    made.remove()
    nothing_is_left(cluster)
