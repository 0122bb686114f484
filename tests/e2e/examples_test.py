# SPDX-License-Identifier: Apache-2.0
"""Each of deploy/examples, applied: the buckets, images, sizes and names of clouds are replaced, nothing else."""

import pytest
import yaml

from chart.lib import of_kind, render
from e2e.lib.machine import eventually
from e2e.lib.stories import BUSYBOX, Store
from paths import TOP
from servers import versitygw
from servers.tls import Authority

EXAMPLES = TOP / "deploy/examples"
NAMES = sorted(p.name for p in EXAMPLES.iterdir() if p.is_dir())
FILES = {"config.json": b"{}", "a.fa": b"A" * 1000, "sub/b.fa": b"B" * 1000, "part-0": b"0" * 100_000}


def manifests(name):
    return [o for file in sorted((EXAMPLES / name / "manifests").glob("*.yaml")) for o in yaml.safe_load_all(file.read_text())]


def pod_spec(one):
    return one["spec"] if one["kind"] == "Pod" else one["spec"]["template"]["spec"] if one["kind"] in ("Job", "Deployment") \
        else None


def adapted(one, store, buckets):
    """The object as this cluster can run it."""
    if one["kind"] == "BucketSource":
        spec = one["spec"]
        buckets["source"] = store.bucket(FILES)
        spec.update(uri=f"s3://{buckets['source']}/", endpoint=store.url, region=versitygw.REGION, pathStyle=True)
        if "caBundle" in spec:
            spec["caBundle"] = store.authority.pem
        if spec.pop("serviceAccountName", None) or spec.get("identity", {}).get("method") == "anonymous":
            spec.pop("identity", None)  # this cluster has no cloud, and the store no public buckets
            spec["secretRef"] = {"name": "keys"}
        spec["secretRef"] = {"name": "keys"}
        if "export" in spec:
            buckets["export"] = store.bucket()
            spec["export"].update(uri=f"s3://{buckets['export']}/")
    if one["kind"] == "PersistentVolumeClaim":
        one["spec"]["resources"]["requests"]["storage"] = "1Gi"
    spec = pod_spec(one)
    if spec:
        spec.pop("nodeSelector", None)
        spec["terminationGracePeriodSeconds"] = 1
        for container in spec["containers"]:
            container.update(BUSYBOX)
            container.pop("resources", None)
        for volume in spec["volumes"]:
            if "ephemeral" in volume:
                volume["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"] = "512Mi"
    return one


@pytest.fixture(scope="module")
def private_store(cluster, tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with Store(tls=authority.sign(Store.host)) as running:
        running.authority = authority
        yield running


def names_an_authority(name):
    return any("caBundle" in one.get("spec", {}) for one in manifests(name))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_does_what_it_says(cluster, request, team, name):
    store, buckets = request.getfixturevalue("private_store" if names_an_authority(name) else "store"), {}
    objects = [adapted(one, store, buckets) for one in manifests(name)]
    try:
        team.apply(*(one for one in objects if pod_spec(one) is None), *(one for one in objects if pod_spec(one)))
        for one in filter(pod_spec, objects):
            if one["kind"] == "Pod":
                team.await_pod(one["metadata"]["name"], "Succeeded", 120)
            elif one["kind"] == "Job":
                cluster.kubectl("wait", "--for=condition=Complete", f"job/{one['metadata']['name']}", "-n", team.name,
                                "--timeout=120s", timeout=130)
            else:
                cluster.kubectl("rollout", "status", f"deployment/{one['metadata']['name']}", "-n", team.name,
                                "--timeout=120s", timeout=130)
        if "export" in buckets:
            cluster.kubectl("delete", "pod", "trainer", "-n", team.name, "--timeout=60s")
            eventually(lambda: store.keys(buckets["export"]) == {f"checkpoints/step-{n}/weights" for n in (200, 300)},
                       "the newest two checkpoints are in the bucket", 90)
    finally:  # what is not in the namespace does not go with it
        cluster.kubectl("delete", "storageclass", "cistern-gentle", "--ignore-not-found")


@pytest.mark.parametrize("name", [n for n in NAMES if (EXAMPLES / n / "values.yaml").exists()])
def test_an_examples_values_are_ones_that_the_chart_takes(name):
    objects = render(EXAMPLES / name / "values.yaml")
    arguments = of_kind(objects, "DaemonSet", "cistern-node")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    disks = [a for a in arguments if a.startswith("--disks=default=model:")]
    assert bool(disks) == (name != "laptop")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_explains_itself_and_its_access_and_is_in_the_index(name):
    text = (EXAMPLES / name / "README.md").read_text()
    assert text.startswith("# ") and "\nAccess: " in text
    assert f"[{name}]({name})" in (EXAMPLES / "README.md").read_text()
