# SPDX-License-Identifier: Apache-2.0
"""Each of deploy/examples, applied: buckets, images, sizes and endpoints are replaced, and anonymous reads by keys."""

import json

import pytest
import yaml

from chart.lib import of_kind, render
from e2e.lib.clouds import Clouds
from e2e.lib.machine import eventually
from e2e.lib.ours import API
from e2e.lib.stories import BUSYBOX, Store, nothing_is_left
from lint.pages import blocks_of
from paths import TOP
from servers import versitygw
from servers.tls import Authority

EXAMPLES = TOP / "deploy/examples"
NAMES = sorted(p.name for p in EXAMPLES.iterdir() if p.is_dir())
CLOUDS = ("eks-instance-store", "gke-a3")
FILES = {"config.json": b"{}", "a.fa": b"A" * 1000, "sub/b.fa": b"B" * 1000, "part-0": b"0" * 100_000}


def manifests(name):
    if name == "README":
        return list(yaml.safe_load_all(next(b.text for b in blocks_of(TOP, "README.md") if b.kind == "yaml")))
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
        if spec.get("identity", {}).get("method") == "anonymous":
            spec.pop("identity")  # the store has no public buckets
        if "serviceAccountName" not in spec:
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


@pytest.mark.parametrize("name", ["README", *(name for name in NAMES if name not in CLOUDS)])
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


def iam(name):
    [statement] = json.loads((EXAMPLES / f"eks-instance-store/iam/{name}.json").read_text())["Statement"]
    return statement


@pytest.fixture(scope="module")
def clouds(cluster, cistern):
    """The chart with the identity values of the two examples, and clouds that trust the cluster."""
    identity = [yaml.safe_load((EXAMPLES / name / "values.yaml").read_text())["identity"] for name in CLOUDS]
    assert identity[0] == identity[1]
    with Clouds(cluster) as made:
        made.fill(FILES)
        cistern.install(cluster, identity=identity[0], endpoints={"trusted": [made.amazon.url, made.google.url]})
        try:
            with made.known_to_the_controller(iam("pod-identity-trust")["Principal"]["AWS"]):
                yield made
        finally:
            cistern.install(cluster)
            made.await_controller()


def trust_by_irsa(sts, source, role):
    said = {key.rsplit(":", 1)[1]: value for key, value in iam("irsa-trust")["Condition"]["StringEquals"].items()}
    sts.roles[role] = said


def trust_by_pod_identity(sts, source, role):
    """As docs/eks.md: the source names the method, and the role trusts the controller's for the external ID."""
    assert iam("controller-policy")["Resource"] == role
    source["spec"]["identity"] = {"method": "podIdentity"}
    sts.assumable[role] = iam("pod-identity-trust")["Condition"]["StringEquals"]["sts:ExternalId"]


def filled(cluster, objects):
    """The example as it is, in the namespace that its values name: its pod sees the files of the bucket."""
    try:
        cluster.apply(*objects)
        pod = next(one for one in objects if one["kind"] == "Pod")["metadata"]["name"]
        cluster.await_pod(pod, "Succeeded", seconds=90)
        assert cluster.kubectl("logs", pod) == f"{len(FILES)}\n"
        [source] = cluster.api.list(f"{API}/namespaces/default/bucketsources")
        return source["status"]["identity"]
    finally:
        for one in reversed(objects):
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--timeout=60s")
        nothing_is_left(cluster)


def in_this_cluster(name, endpoint):
    """The example's objects; the bucket, the endpoint and the parts that adapted() replaces are the test's."""
    objects = [one if one["kind"] == "BucketSource" else adapted(one, None, {}) for one in manifests(name)]
    source = next(one for one in objects if one["kind"] == "BucketSource")
    scheme = source["spec"]["uri"].partition("://")[0]
    source["spec"].update(uri=f"{scheme}://bench/", endpoint=endpoint, pathStyle=True)
    return objects, source


@pytest.mark.parametrize("trust", [trust_by_irsa, trust_by_pod_identity])
def test_the_eks_example_reads_with_the_role_of_its_account(cluster, clouds, trust):
    objects, source = in_this_cluster("eks-instance-store", clouds.amazon.url)
    account = next(one for one in objects if one["kind"] == "ServiceAccount")
    role = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
    trust(clouds.sts, source, role)
    before = len(clouds.sts.granted)
    said = filled(cluster, objects)
    assert said["principal"] == role and set(clouds.sts.granted[before:]) == {(role, "system:serviceaccount:default:trainer")}


def test_the_gke_example_reads_as_its_service_account_in_a_cluster_that_is_found_by_its_issuer(cluster, clouds):
    objects, _ = in_this_cluster("gke-a3", clouds.google.url)
    said = filled(cluster, objects)
    assert (said["method"], said["principal"]) == ("gke", "ns/default/sa/trainer")
    assert ("federation", "system:serviceaccount:default:trainer") in clouds.sts.granted


@pytest.mark.parametrize("name", [n for n in NAMES if (EXAMPLES / n / "values.yaml").exists()])
def test_an_examples_values_are_ones_that_the_chart_takes(name):
    objects = render(EXAMPLES / name / "values.yaml")
    arguments = of_kind(objects, "DaemonSet", "cistern-node")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    disks = [a for a in arguments if a.startswith("--disks=default=model:")]
    assert bool(disks) == (name != "laptop")


@pytest.mark.parametrize("name", ["README", *NAMES])
def test_the_pods_of_an_example_need_no_image_of_yours(name):
    images = {c["image"] for one in manifests(name) if pod_spec(one) for c in pod_spec(one)["containers"]}
    assert images == {"busybox:1.37"}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_explains_itself_and_its_access_and_is_in_the_index(name):
    text = (EXAMPLES / name / "README.md").read_text()
    assert text.startswith("# ") and "\nAccess: " in text
    assert f"[{name}]({name})" in (EXAMPLES / "README.md").read_text()
