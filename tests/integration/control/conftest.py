# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from integration.lib.control import NAMESPACE, Controller, FakeNode, remove
from servers.kubernetes import ApiError, Kubernetes

CRDS = pathlib.Path(__file__).parents[3] / "charts/cistern/templates/crds"


def install_crds(cluster):
    cluster.kubectl("apply", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s", timeout=150)
    for kind in ("cisternvolumes", "cisternpools", "bucketsources"):
        cluster.await_("api", lambda kind=kind: cluster.get(f"/apis/cistern.io/v1alpha1/{kind}"))


@pytest.fixture(scope="module")
def cluster():
    with Kubernetes() as k:
        install_crds(k)
        for name in (NAMESPACE, "kube-node-lease"):
            try:
                k.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            except ApiError as e:
                assert e.code == 409
        yield k


@pytest.fixture
def clean(cluster):
    """Removes all volumes and pools before and after a test."""
    def sweep():
        for kind in ("cisternvolumes", "cisternpools"):
            path = f"/apis/cistern.io/v1alpha1/{kind}"
            for item in cluster.get(path)["items"]:
                remove(cluster, f"{path}/{item['metadata']['name']}")
        for path in ("/api/v1/nodes", "/api/v1/persistentvolumes", "/api/v1/namespaces/default/persistentvolumeclaims",
                     f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims",
                     "/apis/cistern.io/v1alpha1/namespaces/default/bucketsources"):
            for item in cluster.get(path)["items"]:
                remove(cluster, f"{path}/{item['metadata']['name']}")
    sweep()
    yield
    sweep()


@pytest.fixture
def nodes(cluster, clean):
    """Makes fake nodes."""
    made = []

    def make(name="node-a", **options):
        made.append(FakeNode(cluster, name, **options))
        return made[-1]
    yield make
    for node in made:
        node.stop()


@pytest.fixture
def controllers(cluster, clean, tmp_path):
    """Starts controllers."""
    made = []

    def start(name="controller-0", *flags):
        made.append(Controller(cluster, tmp_path, name, flags))
        return made[-1].start()
    yield start
    for controller in made:
        code = controller.stop()
        assert code in (0, -9), controller.log_text()[-5000:]
