# SPDX-License-Identifier: Apache-2.0
"""What a BucketSource's status says before any volume is made of it, asked of real stores by the controller."""

import base64

import pytest

from integration.lib.claims import API, World, wait_for
from servers import versitygw
from servers.bucket import BucketServer
from servers.tls import Authority


@pytest.fixture(scope="module")
def world():
    w = World(nodes=1, flags=["--broker-listen=127.0.0.1:0"])
    try:
        yield w.start()
    finally:
        w.stop()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of an authority of its own."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with versitygw.Versitygw(tls=authority.sign("127.0.0.1")) as server:
        server.authority = authority
        server.make_bucket("bucket")
        yield server


@pytest.fixture
def ns(world, request):
    name = f"team-{abs(hash(request.node.name)) % 10**8}"
    world.make_namespace(name)
    return name


def keys(world, ns, secret=versitygw.SECRET_KEY, name="keys"):
    data = {"access_key_id": versitygw.ACCESS_KEY, "secret_access_key": secret}
    world.cluster.create(f"/api/v1/namespaces/{ns}/secrets", {
        "metadata": {"name": name}, "data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}})


def make(world, ns, store, name="data", **spec):
    world.cluster.create(f"{API}/namespaces/{ns}/bucketsources", {
        "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": name},
        "spec": {"uri": "s3://bucket/data/", "endpoint": store.url, "region": versitygw.REGION,
                 "secretRef": {"name": "keys"}, "caBundle": store.authority.pem, **spec}})


def status(world, ns, name="data"):
    return world.cluster.get(f"{API}/namespaces/{ns}/bucketsources/{name}").get("status", {})


def wait_for_phase(world, ns, phase, name="data", seconds=30):
    return wait_for(lambda: (s := status(world, ns, name)).get("phase") == phase and s, seconds, f"{name} {phase}")


def conditions(told):
    return {c["type"]: c["status"] for c in told["conditions"]}


def test_a_source_is_ready_before_any_volume_is_made_of_it(world, ns, store):
    keys(world, ns)
    make(world, ns, store)
    told = wait_for_phase(world, ns, "Ready")
    assert conditions(told) == {"Accepted": "True", "IdentityReady": "True", "Reachable": "True", "Listed": "Unknown",
                                "Ready": "True"}
    assert told["resolved"] == {"scheme": "s3", "bucket": "bucket", "prefix": "data/", "endpoint": store.url,
                                "region": versitygw.REGION}
    assert told["identity"]["method"] == "secret" and told["identity"]["principal"] == f"secret {ns}/keys"
    assert "lastError" not in told


def test_what_is_wrong_is_told_with_whom_the_store_refused(world, ns, store):
    keys(world, ns, secret="wrong")
    make(world, ns, store)
    told = wait_for_phase(world, ns, "Degraded")
    assert conditions(told)["IdentityReady"] == "False" and conditions(told)["Ready"] == "False"
    assert told["lastError"]["id"] == "CIS1401" and f"secret {ns}/keys" in told["lastError"]["message"], told


@pytest.mark.parametrize("spec, number, condition", [
    ({"uri": "s3://no-such-bucket/"}, "CIS1405", "Reachable"),
    ({"endpoint": "https://127.0.0.1:9"}, "CIS1611", "Reachable"),
    ({"secretRef": {"name": "nobody"}}, "CIS1906", "IdentityReady"),
])
def test_what_does_not_answer_is_degraded_and_says_why(world, ns, store, spec, number, condition):
    keys(world, ns)
    make(world, ns, store, **spec)
    told = wait_for_phase(world, ns, "Degraded")
    assert told["lastError"]["id"] == number, told
    assert conditions(told)[condition] == "False" and conditions(told)["Ready"] == "False"


def test_a_store_of_an_authority_that_nobody_named_is_not_trusted(world, ns, store):
    keys(world, ns)
    make(world, ns, store, caBundle=Authority(store.root).pem)
    assert wait_for_phase(world, ns, "Degraded")["lastError"]["id"] == "CIS1613"


def test_a_source_that_is_mended_is_ready_at_once(world, ns, store):
    keys(world, ns)
    make(world, ns, store, endpoint="https://127.0.0.1:9")
    wait_for_phase(world, ns, "Degraded")
    world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"endpoint": store.url}})
    told = wait_for_phase(world, ns, "Ready", seconds=20)
    assert told["observedGeneration"] == 2


def test_a_suspended_source_is_not_asked_for(world, ns):
    with BucketServer() as server:
        world.cluster.create(f"{API}/namespaces/{ns}/bucketsources", {
            "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": "data"},
            "spec": {"uri": "s3://bench/", "endpoint": server.url, "identity": {"method": "anonymous"}, "suspend": True}})
        wait_for_phase(world, ns, "Suspended")
        assert server.stats()["requests"] == 0
        world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"suspend": False}})
        wait_for_phase(world, ns, "Ready")
        assert server.stats()["requests"] == 1  # one page of one key, and none for every change of a status


def test_what_only_exports_is_ready_when_there_is_somebody_to_export_as(world, ns, store):
    keys(world, ns)
    make(world, ns, store, uri=None, export={"uri": "s3://bucket/out/"})
    told = wait_for_phase(world, ns, "Ready")
    assert conditions(told)["IdentityReady"] == "True" and conditions(told)["Reachable"] == "Unknown"


def test_many_sources_are_all_asked_and_none_twice(world, ns):
    with BucketServer() as server:
        for number in range(60):
            world.cluster.create(f"{API}/namespaces/{ns}/bucketsources", {
                "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": f"data-{number}"},
                "spec": {"uri": "s3://bench/", "endpoint": server.url, "identity": {"method": "anonymous"}}})
        for number in range(60):
            wait_for_phase(world, ns, "Ready", f"data-{number}", 60)
        assert server.stats()["requests"] == 60
