# SPDX-License-Identifier: Apache-2.0
"""Events of an object appear in `kubectl describe`."""

import time

import pytest

from integration.lib.kube import KubeTool
from servers.api_proxy import ApiProxy, answer, status


@pytest.fixture
def about(cluster, namespace):
    made = cluster.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "a"}})
    return {"resource": "configmaps", "ns": namespace, "name": "a", "uid": made["metadata"]["uid"]}


PATIENCE = 60  # seconds


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def events(cluster, namespace, count):
    """The events there, when there are that many."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = cluster.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        if len(found) >= count or time.monotonic() > deadline:
            assert len(found) == count, found
            return found
        time.sleep(0.05)


def test_an_event_is_shown_with_the_object(cluster, tool, namespace, about):
    tool.ask("event", reason="HydrationStarted", message="12 GiB in 40 objects", **about)
    tool.ask("event", reason="Odd", message="look here", warning=True, **about)
    events(cluster, namespace, 2)
    shown = cluster.kubectl("describe", "configmap", "-n", namespace, "a")
    lines = [line.split(maxsplit=4) for line in shown.splitlines() if "kube-tool" in line]
    assert sorted((w[0], w[1], w[3], w[4]) for w in lines) == [
        ("Normal", "HydrationStarted", "kube-tool", "12 GiB in 40 objects"), ("Warning", "Odd", "kube-tool", "look here")]


def test_an_event_of_a_cluster_wide_object_is_shown_too(cluster, tool, namespace):
    uid = cluster.get(f"/api/v1/namespaces/{namespace}")["metadata"]["uid"]
    tool.ask("event", resource="namespaces", ns="", name=namespace, uid=uid, reason="Seen", message="all of it")
    wait_for(lambda: "all of it" in cluster.kubectl("describe", "namespace", namespace) + cluster.kubectl("get", "events"))


def test_the_same_again_is_counted_and_sent_once_a_minute_at_most(cluster, tool, namespace, about):
    tool.ask("event", reason="Slow", message="first", **about)
    tool.ask("event", reason="Slow", message="again", times=500, **about)
    assert events(cluster, namespace, 1)[0]["count"] == 1
    time.sleep(6)
    assert tool.ask("stats").requests == 1
    assert events(cluster, namespace, 1)[0]["message"] == "first"


def test_a_long_message_is_cut_where_a_character_ends(cluster, tool, namespace, about):
    tool.ask("event", reason="Long", message="x" + "ü" * 800, **about)
    assert events(cluster, namespace, 1)[0]["message"] == "x" + "ü" * 499


def test_events_of_many_objects_use_limited_memory(cluster, tool, namespace, about):
    tool.ask("event", reason="First", message="m", **about)
    events(cluster, namespace, 1)
    before = tool.memory_kib()  # what a TLS connection needs is there
    for i in range(300):
        dropped = tool.ask("event", reason="Many", message="m", times=100, **dict(about, name=f"object-{i}")).dropped
    assert dropped > 0
    assert tool.memory_kib() - before < 8192  # 30,000 events were sent


BURST, PER_SECOND = 200, 5  # of a namespace


def test_a_flood_of_events_of_a_namespace_leaves_requests_to_other_namespaces(cluster, namespace, about):
    with KubeTool(cluster.kubeconfig, "--qps", "1000", "--burst", "1000") as tool:
        def requests():
            return tool.ask("stats").requests

        def flood(i):
            tool.ask("event", reason="Flood", message="m", **dict(about, name=f"object-{i}"))

        began = time.monotonic()
        for i in range(BURST):  # a flood that is faster drops the least recent before they are sent
            flood(i)
            wait_for(lambda i=i: requests() > i)
        for i in range(BURST, 2 * BURST):
            flood(i)
        tool.ask("event", reason="Seen", message="m", resource="namespaces", ns="", name=namespace, uid="u")
        wait_for(lambda: "Seen" in cluster.kubectl("get", "events"))
        before = requests()
        assert before <= BURST + PER_SECOND * (time.monotonic() - began) + 1
        wait_for(lambda: requests() > before + 20)  # those that are still known follow
    assert f"namespace/{namespace}" in cluster.kubectl("get", "events", "--field-selector", "reason=Seen")


def test_an_event_that_the_server_refused_for_a_while_is_sent_later(cluster, namespace, about):
    with ApiProxy(cluster) as proxy, KubeTool(proxy.kubeconfig) as tool:
        proxy.fault("POST", "/events", answer(500), times=2)
        tool.ask("event", reason="Late", message="m", **about)
        assert events(cluster, namespace, 1)[0]["reason"] == "Late"
        assert len(proxy.seen("POST", "/events")) == 3


def test_a_server_that_denies_events_costs_the_events_only(cluster, namespace, about):
    with ApiProxy(cluster) as proxy, KubeTool(proxy.kubeconfig) as tool:
        proxy.fault("POST", "/events", status(403, "Forbidden"), times=None)
        tool.ask("event", reason="Lost", message="m", **about)
        wait_for(lambda: tool.ask("event", reason="Other", message="m", times=0, **about).dropped > 0)
        assert len(proxy.seen("POST", "/events")) == 1


def test_a_server_that_takes_no_events_costs_the_events_only(cluster, namespace, about):
    """Each would be retried for an hour. Beyond the limit of those that are kept, the least recent are dropped."""
    with ApiProxy(cluster) as proxy, KubeTool(proxy.kubeconfig) as tool:
        proxy.fault("POST", "/events", answer(500), times=None)
        began = time.monotonic()
        for i in range(100):
            tool.ask("event", reason="Lost", message="m", **dict(about, name=f"object-{i}"))
        wait_for(lambda: tool.ask("event", reason="Other", message="m", times=0, **about).dropped > 0)
        assert len(proxy.seen("POST", "/events")) <= BURST + PER_SECOND * (time.monotonic() - began) + 1
