# SPDX-License-Identifier: Apache-2.0
"""One leader, never two; and soon another when the first is gone."""

import itertools
import signal
import threading
import time

import pytest

from integration.lib.kube import KubeTool
from servers.api_proxy import ApiProxy, answer, late, lost, silence, status

names = itertools.count()


@pytest.fixture
def lease():
    return {"ns": "default", "name": f"lease-{next(names)}", "duration_ms": 3000, "retry_ms": 400}


def hear(tool, what, seconds=20):
    """The next of that kind."""
    deadline = time.monotonic() + seconds
    while (told := tool.hear(max(0.01, deadline - time.monotonic()))).lease != what:
        pass
    return told


def test_one_leads_and_the_other_knows_who(cluster, lease):
    with KubeTool(cluster.kubeconfig) as one, KubeTool(cluster.kubeconfig) as two:
        one.send("lease", identity="one", **lease)
        hear(one, "started")
        two.send("lease", identity="two", **lease)
        assert hear(two, "leader").value == "one"
        assert one.ask("held").held and not two.ask("held").held
        two.hears_nothing(4)
        spec = cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{lease['name']}")["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("one", 3)


def test_a_lease_that_is_released_is_taken_at_once(cluster, lease):
    lease = dict(lease, duration_ms=60000, retry_ms=20000)
    with KubeTool(cluster.kubeconfig) as one, KubeTool(cluster.kubeconfig) as two:
        one.send("lease", identity="one", **lease)
        hear(one, "started")
        two.send("lease", identity="two", **lease)
        hear(two, "leader")
        one.send("release")
        assert hear(one, "stopped").at_ms <= hear(one, "released").at_ms
        assert not one.ask("held").held
        hear(two, "started", 15)  # before it would have looked by itself


def test_a_leader_that_is_killed_is_followed(cluster, lease):
    with KubeTool(cluster.kubeconfig) as two:
        one = KubeTool(cluster.kubeconfig)
        one.send("lease", identity="one", **lease)
        hear(one, "started")
        two.send("lease", identity="two", **lease)
        hear(two, "leader")
        one.child.kill()
        killed = time.monotonic()
        hear(two, "started")
        assert time.monotonic() - killed > 1.5
        one.child.wait()


def test_a_leader_without_an_api_server_stops_before_another_can_begin(cluster, lease):
    with ApiProxy(cluster) as proxy, KubeTool(proxy.kubeconfig) as one, KubeTool(cluster.kubeconfig) as two:
        one.send("lease", identity="one", **lease)
        hear(one, "started")
        two.send("lease", identity="two", **lease)
        hear(two, "leader")
        for method in ("GET", "PUT"):
            proxy.fault(method, "/leases/", silence(60), times=None)
        stopped = hear(one, "stopped")
        started = hear(two, "started")
        assert started.at_ms - stopped.at_ms > 500
        proxy.no_faults()
        assert hear(one, "leader").value == "two"


def test_a_renewal_whose_answer_was_lost_does_not_end_the_lead(cluster, lease):
    with ApiProxy(cluster) as proxy, KubeTool(proxy.kubeconfig) as one:
        one.send("lease", identity="one", **dict(lease, duration_ms=60000))  # it outlives the test without renewals
        hear(one, "started")
        proxy.fault("PUT", "/leases/", lost())
        proxy.fault("PUT", "/leases/", answer(500))

        def version():
            return cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{lease['name']}")["metadata"]["resourceVersion"]

        def holds_until(condition):
            deadline = time.monotonic() + 50
            while not condition():
                assert one.ask("held").held and time.monotonic() < deadline
                time.sleep(0.05)

        holds_until(lambda: not proxy.unmet())
        before = version()
        holds_until(lambda: version() != before)
        while not one.told.empty():
            assert one.hear().lease != "stopped"


def test_a_slow_server_has_a_leader_that_stays(cluster, lease):
    """Each answer takes a fifth of the time for which a renewal counts."""
    with ApiProxy(cluster) as proxy, KubeTool(proxy.kubeconfig) as one:
        for method in ("GET", "POST", "PUT"):
            proxy.fault(method, "/leases", late(1.2), times=None)
        one.send("lease", identity="one", **dict(lease, duration_ms=9000))
        hear(one, "started", 30)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            assert one.ask("held").held
            time.sleep(0.05)


def test_a_write_that_is_always_refused_as_a_conflict_is_reported_and_not_repeated_without_pause(cluster, lease):
    with ApiProxy(cluster) as proxy, KubeTool(proxy.kubeconfig) as one:
        one.send("lease", identity="one", **dict(lease, retry_ms=1000))
        hear(one, "started")
        proxy.fault("PUT", "/leases/", status(409, "Conflict"), times=None)
        hear(one, "stopped")
        assert "Conflict" in hear(one, "trouble").value
        before = len(proxy.requests)
        time.sleep(3)
        assert len(proxy.requests) - before <= 15
        proxy.no_faults()
        hear(one, "started")


def test_a_fenced_request_is_sent_by_the_leader_only(cluster, lease, namespace):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with KubeTool(cluster.kubeconfig) as one, KubeTool(cluster.kubeconfig) as two:
        one.send("lease", identity="one", **lease)
        hear(one, "started")
        two.send("lease", identity="two", **lease)
        hear(two, "leader")
        create = {"resource": "configmaps", "ns": namespace, "body": body, "fenced": True}
        assert two.ask("create", **create).code == "CANCELLED"
        assert one.ask("create", **create).code == "OK"


def test_a_deleted_lease_object_is_created_again(cluster, lease):
    with KubeTool(cluster.kubeconfig) as one:
        one.send("lease", identity="one", **lease)
        hear(one, "started")
        cluster.delete(f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{lease['name']}")
        hear(one, "stopped")
        hear(one, "started")


def test_two_never_lead_at_once_however_they_are_stopped_and_continued(cluster, lease):
    """Each says all the time whether it leads, by one clock; the spans in which they did may not meet."""
    lease = dict(lease, duration_ms=2000, retry_ms=300)
    tools = [KubeTool(cluster.kubeconfig) for _ in range(2)]
    held, stopping = [[], []], threading.Event()

    def sample(index):
        while not stopping.is_set():
            answer_ = tools[index].ask("held")
            held[index].append((answer_.at_ms, answer_.held))
            time.sleep(0.003)

    for index, tool in enumerate(tools):
        tool.send("lease", identity=f"tool-{index}", **lease)
    threads = [threading.Thread(target=sample, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(1)
        victim = next((i for i in (0, 1) if held[i] and held[i][-1][1]), 0)
        tools[victim].child.send_signal(signal.SIGSTOP)
        time.sleep(3)
        tools[victim].child.send_signal(signal.SIGCONT)
    stopping.set()
    for thread in threads:
        thread.join()
    led = [{at for at, is_held in samples if is_held} for samples in held]
    assert all(led), "each led at some time"
    spans = sorted((at, index) for index in (0, 1) for at in led[index])
    changes = [(a, b) for a, b in zip(spans, spans[1:]) if a[1] != b[1]]
    assert 2 <= len(changes) <= 6, changes
    assert all(b[0] - a[0] > 100 for a, b in changes), changes
    for tool in tools:
        tool.stop()
