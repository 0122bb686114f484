# SPDX-License-Identifier: Apache-2.0
"""The status of a BucketSource before it has a volume. The controller probes real stores."""

import base64
import contextlib
import socket
import threading
import time

import pytest

from integration.lib.claims import API, PATIENCE, ProxiedWorld, running_world, wait_for
from servers import versitygw
from servers.answering import Answering
from servers.api_proxy import answer
from servers.bucket import BucketServer
from servers.kubernetes import ApiError
from servers.tls import Authority


@pytest.fixture(scope="module")
def world():
    with running_world(ProxiedWorld, nodes=1, flags=["--broker-listen=127.0.0.1:0", "--allow-address=127.0.0.1/32"]) as w:
        yield w


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of an authority of its own."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with versitygw.Versitygw(tls=authority.sign("127.0.0.1")) as server:
        server.authority = authority
        server.make_bucket("bucket")
        (server.data / "bucket/data").mkdir()
        (server.data / "bucket/data/part-0").write_bytes(b"0")
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


def wait_for_phase(world, ns, phase, name="data", seconds=PATIENCE):
    return wait_for(lambda: (s := status(world, ns, name)).get("phase") == phase and s, seconds, f"{name} {phase}")


def when_ready(world, ns, name="data"):
    told = wait_for_phase(world, ns, "Ready", name)
    return next(c["lastTransitionTime"] for c in told["conditions"] if c["type"] == "Ready")


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


def test_a_denied_probe_reports_the_identity_that_the_store_denied(world, ns, store):
    keys(world, ns, secret="wrong")
    make(world, ns, store)
    told = wait_for_phase(world, ns, "Degraded")
    assert conditions(told)["IdentityReady"] == "False" and conditions(told)["Ready"] == "False"
    assert told["lastError"]["id"] == "CIS1401" and f"secret {ns}/keys" in told["lastError"]["message"], told


@pytest.mark.parametrize("uri, number, said", [
    ("s3://bucket/datta/", "CIS1530", "'s3://bucket/datta/': no object is below this prefix"),
    ("s3://bucket/data", "CIS1406", "for all objects below a prefix write s3://bucket/data/"),
])
def test_source_without_objects_is_degraded_unless_it_may_be_empty(world, ns, store, uri, number, said):
    keys(world, ns)
    make(world, ns, store, uri=uri)
    told = wait_for_phase(world, ns, "Degraded")
    assert told["lastError"]["id"] == number and said in told["lastError"]["message"], told
    assert {c["reason"] for c in told["conditions"] if c["status"] == "False"} == {"SourceEmpty"}
    assert conditions(told)["Reachable"] == "True"
    world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"onEmpty": "allow"}})
    assert "lastError" not in wait_for_phase(world, ns, "Ready")


@pytest.mark.parametrize("spec, number, condition", [
    ({"uri": "s3://no-such-bucket/"}, "CIS1405", "Reachable"),
    ({"endpoint": "https://127.0.0.1:9"}, "CIS1611", "Reachable"),
    ({"secretRef": {"name": "nobody"}}, "CIS1906", "IdentityReady"),
])
def test_a_store_without_answer_is_degraded_with_the_cause(world, ns, store, spec, number, condition):
    keys(world, ns)
    make(world, ns, store, **spec)
    told = wait_for_phase(world, ns, "Degraded")
    assert told["lastError"]["id"] == number, told
    assert conditions(told)[condition] == "False" and conditions(told)["Ready"] == "False"


def test_a_store_with_a_certificate_of_an_unknown_authority_is_refused(world, ns, store):
    keys(world, ns)
    make(world, ns, store, caBundle=Authority(store.root).pem)
    assert wait_for_phase(world, ns, "Degraded")["lastError"]["id"] == "CIS1613"


def test_a_source_that_is_mended_is_ready_at_once(world, ns, store):
    keys(world, ns)
    make(world, ns, store, endpoint="https://127.0.0.1:9")
    wait_for_phase(world, ns, "Degraded")
    world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"endpoint": store.url}})
    told = wait_for_phase(world, ns, "Ready")
    assert told["observedGeneration"] == 2


def test_a_suspended_source_is_not_asked_for(world, ns):
    with BucketServer() as server:
        world.cluster.create(f"{API}/namespaces/{ns}/bucketsources", {
            "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": "data"},
            "spec": {"uri": "s3://bench/", "onEmpty": "allow", "endpoint": server.url, "identity": {"method": "anonymous"}, "suspend": True}})
        wait_for_phase(world, ns, "Suspended")
        assert server.stats()["requests"] == 0
        world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"suspend": False}})
        wait_for_phase(world, ns, "Ready")
        assert server.stats()["requests"] == 1  # one page of one key, and none for every change of a status


def test_a_source_that_only_exports_is_ready_with_export_credentials(world, ns, store):
    keys(world, ns)
    make(world, ns, store, uri=None, export={"uri": "s3://bucket/out/"})
    told = wait_for_phase(world, ns, "Ready")
    assert conditions(told)["IdentityReady"] == "True" and conditions(told)["Reachable"] == "Unknown"


def test_many_sources_are_all_asked_and_none_twice(world, ns):
    with BucketServer() as server:
        for number in range(60):
            world.cluster.create(f"{API}/namespaces/{ns}/bucketsources", {
                "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": f"data-{number}"},
                "spec": {"uri": "s3://bench/", "onEmpty": "allow", "endpoint": server.url, "identity": {"method": "anonymous"}}})
        for number in range(60):
            wait_for_phase(world, ns, "Ready", f"data-{number}")
        assert server.stats()["requests"] == 60


# ---- a source that was ready and fails later

def event_of(world, ns, name, kind="PersistentVolumeClaim"):
    return next((e["message"] for e in world.events(ns, "SourceDegraded")
                 if e["involvedObject"]["kind"] == kind and e["involvedObject"]["name"] == name), None)


def reconciles(world, ns, name):
    return world.log().count(f"event=claim namespace={ns} claim={name} ")


def wait_for_reconcile(world, ns, name):
    """One that begins after this call."""
    before = reconciles(world, ns, name)
    world.cluster.patch(f"/api/v1/namespaces/{ns}/persistentvolumeclaims/{name}", {"metadata": {"labels": {"again": "true"}}})
    wait_for(lambda: reconciles(world, ns, name) >= before + 2)


def test_source_that_was_ready_and_fails_is_an_event_of_its_waiting_claims_only(world, ns, store):
    keys(world, ns)
    make(world, ns, store)
    make(world, ns, store, "wrong", endpoint="https://127.0.0.1:9")
    for name in ("data", "wrong"):
        world.make_claim(ns, f"of-{name}", source=name)
    wait_for_phase(world, ns, "Ready")
    wait_for_phase(world, ns, "Degraded", "wrong")
    world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"endpoint": "https://127.0.0.1:8"}})
    message = wait_for(lambda: event_of(world, ns, "of-data"), 60)
    assert message.startswith(f"BucketSource {ns}/data: ") and "127.0.0.1:8" in message and "CIS1611" in message, message
    wait_for_reconcile(world, ns, "of-wrong")
    assert not event_of(world, ns, "of-wrong"), "that source was never ready: its Job has the cause"


def test_source_that_fails_while_its_claim_is_filled_is_an_event_of_claim_and_pod(world, ns, store):
    keys(world, ns)
    make(world, ns, store)
    wait_for_phase(world, ns, "Ready")
    world.every_node(hydrates=False)
    try:
        world.make_claim(ns)
        world.make_pod(ns)
        wait_for(lambda: [v for v in world.volumes() if v["spec"].get("claim") == f"{ns}/claim" and v.get("status", {}).get("phase") == "Hydrating"], 90)
        assert not event_of(world, ns, "claim")
        world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"endpoint": "https://127.0.0.1:8"}})
        assert "CIS1611" in wait_for(lambda: event_of(world, ns, "pod", "Pod"), 60)
        assert event_of(world, ns, "claim")
    finally:
        world.every_node(hydrates=True)
    world.wait_for_bound(ns)


def test_source_that_fails_before_a_new_leader_begins_is_an_event_of_its_claims(world, ns, store):
    keys(world, ns)
    make(world, ns, store)
    world.make_claim(ns, "filled")
    world.make_pod(ns, "filled")
    world.wait_for_bound(ns, "filled")
    wait_for(lambda: status(world, ns).get("listing"), what="its listing is known")
    world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": {"endpoint": "https://127.0.0.1:8"}})
    wait_for_phase(world, ns, "Degraded")
    world.kill("controller0")
    world.forget_leader()
    world.start_controller()
    world.make_claim(ns, "waiting")
    assert "CIS1611" in wait_for(lambda: event_of(world, ns, "waiting"), what="the event of a new leader")


def test_errors_of_other_claims_of_a_source_send_no_event_to_a_claim(world, ns, store):
    keys(world, ns)
    make(world, ns, store)
    wait_for_phase(world, ns, "Ready")
    world.make_claim(ns, "waiting")
    world.every_node(fault={"object": "data/a", "id": "CIS1510", "code": "NO_SPACE", "message": "too large", "attempts": 1})
    try:
        world.make_claim(ns, "small")
        world.make_pod(ns, "small")
        assert wait_for_phase(world, ns, "Degraded", seconds=90)["lastError"]["message"] == "too large"
        wait_for_reconcile(world, ns, "waiting")
        assert not event_of(world, ns, "waiting") and not event_of(world, ns, "small")
    finally:
        world.every_node(fault=None)
    world.wait_for_bound(ns, "small", 90)



# ---- what a namespace's owner may not reach through the controller

def anonymous(world, ns, endpoint, name="data", **spec):
    world.cluster.create(f"{API}/namespaces/{ns}/bucketsources", {
        "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": name},
        "spec": {"uri": "s3://bench/", "onEmpty": "allow", "endpoint": endpoint, "identity": {"method": "anonymous"}, "pathStyle": True, **spec}})


@contextlib.contextmanager
def listener(address):
    """Accepts, answers a byte of a head each second, and never ends. `open_then` has the number of open connections at each
    accept."""
    server, taken, over = socket.create_server((address, 0), backlog=512), [], threading.Event()
    open_then = []

    def is_open(connection):
        with contextlib.suppress(BlockingIOError):
            while connection.recv(65536, socket.MSG_DONTWAIT):
                pass
            return False
        return True

    def run():
        with contextlib.suppress(OSError):
            while True:
                taken.append(server.accept()[0])
                open_then.append(sum(map(is_open, taken)))

    def drip():
        while not over.wait(1):
            for connection in list(taken):
                with contextlib.suppress(OSError):
                    connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" if connection not in greeted else b" ")
                    greeted.add(connection)

    greeted = set()
    for work in (run, drip):
        threading.Thread(target=work, daemon=True).start()
    try:
        yield server.getsockname()[1], taken, open_then
    finally:
        over.set()
        server.close()
        for connection in taken:
            connection.close()


def test_a_closed_address_is_not_connected_to(world, ns):
    with listener("127.0.0.2") as (port, taken, _):
        anonymous(world, ns, f"http://127.0.0.2:{port}")
        told = wait_for_phase(world, ns, "Degraded")
        assert told["lastError"]["id"] == "CIS1617", told
        assert taken == []


def test_the_nodes_and_the_api_server_are_closed(world, ns):
    """Addresses of nodes are of a documentation range, so that a connection would be a timeout."""
    world.cluster.create("/api/v1/nodes", {"metadata": {"name": f"machine-{ns}"}, "spec": {
        "podCIDR": "198.51.100.128/26", "podCIDRs": ["198.51.100.128/26", "2001:db8::/64"]}})
    world.cluster.patch(f"/api/v1/nodes/machine-{ns}/status", {"status": {"addresses": [
        {"type": "InternalIP", "address": "198.51.100.77"}, {"type": "Hostname", "address": f"machine-{ns}"}]}})
    try:
        for number, address in enumerate(["198.51.100.77:10250", "198.51.100.128:10250", "198.51.100.129", "[2001:db8::1]"]):
            anonymous(world, ns, f"https://{address}", f"data-{number}")
            told = wait_for_phase(world, ns, "Degraded", f"data-{number}")
            assert told["lastError"]["id"] == "CIS1617", told
    finally:
        world.cluster.delete(f"/api/v1/nodes/machine-{ns}")


def test_nodes_with_very_many_addresses_stop_no_probe(world, ns):
    """A kubelet writes the addresses of its own Node. Those of three filled the guard, and no source got credentials."""
    many = [{"type": "ExternalIP", "address": f"198.51.{i // 256}.{i % 256}"} for i in range(20000)]
    names = [f"machine-{ns}-{i}" for i in range(3)]
    try:
        for i, name in enumerate(names):
            world.cluster.create("/api/v1/nodes", {"metadata": {"name": name}})
            world.cluster.patch(f"/api/v1/nodes/{name}/status", {"status": {"addresses": [
                {"type": "InternalIP", "address": f"203.0.113.{i}"}, *many]}})
        for i, name in enumerate(names):
            anonymous(world, ns, f"https://203.0.113.{i}", f"data-{i}")
            told = wait_for_phase(world, ns, "Degraded", f"data-{i}")
            assert told["lastError"]["id"] == "CIS1617", told
        with BucketServer() as server:
            anonymous(world, ns, server.url, "other")
            wait_for_phase(world, ns, "Ready", "other")
    finally:
        for name in names:
            world.cluster.delete(f"/api/v1/nodes/{name}")


def test_no_store_is_probed_before_the_addresses_of_the_api_server_are_known(world, ns):
    """A probe in that time could reach the API server. A refused one would be repeated after a minute."""
    world.proxy.fault("GET", "endpointslices", answer(503, b"{}"), times=None)
    world.kill("controller0")
    world.forget_leader()
    world.start_controller()
    with BucketServer() as server:
        anonymous(world, ns, server.url)
        wait_for(lambda: f"controller-0-{world.starts}" in world.log(), what="the new leader")
        time.sleep(4)
        assert server.stats()["requests"] == 0 and "lastError" not in status(world, ns)
        world.proxy.no_faults()
        wait_for_phase(world, ns, "Ready")


def test_an_internal_page_is_not_shown_in_a_status(world, ns):
    page = b"<Error><Code>Secret page of an internal service</Code><Message>the-database-password</Message></Error>"
    with Answering(lambda r: (403, {}, page)) as server:
        anonymous(world, ns, server.url)
        told = wait_for_phase(world, ns, "Degraded")
        assert server.seen and "the-database-password" not in str(told) and "internal service" not in str(told), told


def test_text_of_one_namespace_that_has_a_nul_holds_up_no_other(world, ns):
    """The controller had read no object any more, of any namespace."""
    other = f"{ns}-other"
    world.make_namespace(other)
    with BucketServer() as server:
        anonymous(world, ns, server.url, "strange")
        world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/strange", {"metadata": {"annotations": {"a": "\0"}}})
        time.sleep(1)
        anonymous(world, other, server.url)
        wait_for_phase(world, other, "Ready")
        wait_for_phase(world, ns, "Ready", "strange")


@pytest.mark.parametrize("namespaces", [1, 4])
def test_tarpits_of_a_few_namespaces_hold_up_no_other(world, ns, namespaces):
    """Four namespaces held all threads: the other one waited for 30 s."""
    other = f"{ns}-other"
    hostile = [ns, *(f"{ns}-{number}" for number in range(1, namespaces))]
    for name in [*hostile[1:], other]:
        world.make_namespace(name)
    with listener("127.0.0.1") as (port, taken, open_then), BucketServer() as server:
        for number in range(20 // namespaces):
            for name in hostile:
                anonymous(world, name, f"http://127.0.0.1:{port}", f"data-{number}")
        wait_for(lambda: len(taken) >= 2 * namespaces, what="the tarpits are asked")
        anonymous(world, other, server.url)
        wait_for_phase(world, other, "Ready")
        told = wait_for(lambda: next((s for n in range(20) if (s := status(world, ns, f"data-{n}")).get("lastError")), None))
        assert told["lastError"]["id"] == "CIS1612", told
        assert max(open_then) <= 2 * 2 * namespaces, "a probe has two connections, when a late page is asked for again"


def test_many_sources_of_one_namespace_delay_the_first_probe_of_no_other(world, ns):
    """Each waited for 100 ms more than the one before, of whichever namespace."""
    other = f"{ns}-other"
    world.make_namespace(other)
    with BucketServer() as server:
        world.proxy.fault("GET", "bucketsources", answer(503, b"{}"), times=None)
        try:
            world.proxy.break_connections()
            for number in range(150):
                anonymous(world, ns, server.url, f"data-{number}")
            anonymous(world, other, server.url)
        finally:
            world.proxy.no_faults()  # the controller sees all of them at once
        ready = sorted(when_ready(world, ns, f"data-{number}") for number in range(150))
        assert when_ready(world, other) < ready[75]


@pytest.mark.parametrize("spec", [
    {"region": "x@evil.example/"}, {"region": "evil.example#"}, {"region": "eu.west"}, {"endpoint": "http://a@evil.example"},
    {"endpoint": "http://evil.example?x=y"}, {"endpoint": "http://evil.example/#"}, {"endpoint": "http://evil example"},
    {"uri": "s3://evil.example:80/x"}, {"uri": "s3://user@evil/x"}, {"uri": "gs://b%2f/x"}, {"uri": "s3://b\u00fccket/x"},
    {"identity": {"method": "auto", "audience": "a b"}}, {"identity": {"method": "auto", "provider": "x\ny"}},
    {"requesterPays": "p&alt=media"}, {"export": {"uri": "s3://out/", "region": "x/y"}},
    {"export": {"uri": "s3://out/", "endpoint": "https://u:p@evil.example"}}])
def test_a_spec_that_would_change_the_url_is_refused_by_the_api_server(world, ns, spec):
    with pytest.raises(ApiError) as refused:
        anonymous(world, ns, "https://minio.example:9000/path", **spec) if "endpoint" not in spec else \
            anonymous(world, ns, spec["endpoint"])
    assert refused.value.code == 422
