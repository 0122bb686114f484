# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from servers.kubernetes import Kubernetes

CRDS = pathlib.Path(__file__).parents[3] / "charts/cistern/templates/crds"


def install_crds(cluster):
    cluster.kubectl("apply", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    cluster.await_("api", lambda: cluster.get("/apis/cistern.io/v1alpha1/cisternvolumes"))


@pytest.fixture(scope="module")
def cluster():
    with Kubernetes() as k:
        install_crds(k)
        yield k
