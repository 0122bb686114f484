# SPDX-License-Identifier: Apache-2.0
"""The controller's Nth request to the API server fails, in each way that a server, a balancer or a network has. Claims
are filled, handed over, given up and released in the same time. Each ends as without faults, and leaves no object.
CISTERN_FAIL_EVERY=K meets each Kth request with each fault, one after the other; without it each fault meets one request,
drawn by CISTERN_SEED."""
import contextlib
import os
import random

import pytest
from servers.api_proxy import answer, cut, late, lost, raw, silence, status

from integration.lib.claims import OURS, ProxiedWorld, running_world, wait_for

pytestmark = pytest.mark.timeout(6 * 3600)
EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SEED = int(os.environ.get("CISTERN_SEED", "1"))
FAULTS = {"a closed door": raw(b""), "a reset in the middle": cut(50, reset=True), "half an answer": cut(50),
          "a lost answer": lost(), "no HTTP": raw(b"hello\r\n"), "silence": silence(3), "500": answer(500),
          "500 of the server's own": status(500, "InternalError"), "503 of a balancer": answer(503, b"<html>", "text/html"),
          "504": status(504, "Timeout"), "429": answer(429, b"{}", retry_after=1), "409": status(409, "Conflict"),
          "403": status(403, "Forbidden"), "401": status(401, "Unauthorized"), "HTML with 200": answer(200, b"<html>", "text/html"),
          "JSON that is cut": answer(200, b'{"kind":"Conf')}
REQUESTS = 75  # of the four claims of a round, at least


@pytest.fixture(scope="module")
def world():
    with running_world(ProxiedWorld) as w:
        yield w


def live(world, ns):
    """Four claims: two that are used and deleted, one that is given up before it is filled, one of no source."""
    for node in world.nodes:
        node.hydrates = False
    for name in ("first", "second", "given-up"):
        world.make_claim(ns, name)
        world.make_pod(ns, name, f"pod-of-{name}")
    world.make_claim(ns, "plain", source=None)
    world.make_pod(ns, "plain", "pod-of-plain")
    wait_for(lambda: len(world.jobs()) == 3, what="three jobs")
    world.end_pod(ns, "pod-of-given-up")
    world.delete_claim(ns, "given-up")
    for node in world.nodes:
        node.hydrates = True
    bound = [world.wait_for_bound(ns, name, 90) for name in ("first", "second", "plain")]
    volumes = {pv["metadata"]["name"]: pv["spec"]["claimRef"]["uid"] for pv in world.pvs()}
    for claim in bound:
        assert volumes[claim["spec"]["volumeName"]] == claim["metadata"]["uid"]
    for name in ("first", "second", "plain"):
        world.end_pod(ns, f"pod-of-{name}")
        world.delete_claim(ns, name)
    for name in ("first", "second", "plain", "given-up"):
        wait_for(lambda name=name: world.is_gone(ns, name), what=f"{name} is gone")
    world.wait_for_nothing_left(90)
    assert world.children["controller0"].poll() is None, world.log()[-3000:]


def test_claims_are_filled_and_released_whatever_requests_of_the_controller_fail(world, ns):
    dice = random.Random(SEED)
    for what, action in FAULTS.items():
        if not EVERY:
            world.proxy.fault(None, "", action, after=dice.randrange(REQUESTS))
        for n in range(0, REQUESTS, EVERY) if EVERY else ():
            print(f"{what} at request {n}", flush=True)
            world.proxy.fault(None, "", action, after=n)
            live(world, ns)
    if not EVERY:
        live(world, ns)
    assert not world.proxy.unmet()


def test_a_claim_is_filled_while_each_answer_takes_three_seconds(world, ns):
    world.proxy.fault(None, "", late(3), times=None)
    try:
        world.make_claim(ns)
        world.make_pod(ns)
        world.wait_for_bound(ns, seconds=240)
    finally:
        world.proxy.no_faults()
    world.empty(ns)


def told(world, ns, reason):
    return {e["involvedObject"]["kind"] for e in world.events(ns, reason)}


@contextlib.contextmanager
def denied_lists_of_pods(world, ns, reason):
    """Until the claim has the event. Then its pod gets it, too, though nothing changes any more."""
    pods = f"/namespaces/{ns}/pods"
    world.proxy.fault("GET", pods, status(403, "Forbidden"), times=None)
    try:
        yield
        wait_for(lambda: told(world, ns, reason) == {"PersistentVolumeClaim"}, what=f"{reason} on the claim")
        assert world.proxy.seen("GET", pods)
    finally:
        world.proxy.no_faults()
    wait_for(lambda: told(world, ns, reason) == {"PersistentVolumeClaim", "Pod"}, what=f"{reason} on the pod")


def make_waiting_pod(world, ns):
    for node in world.nodes:
        node.hydrates = False
    world.make_claim(ns)
    world.make_pod(ns)


def fill(world, ns):
    for node in world.nodes:
        node.hydrates = True
    world.wait_for_bound(ns)
    world.empty(ns)


def test_start_of_a_hydration_reaches_the_pod_after_a_list_of_pods_failed(world, ns):
    with denied_lists_of_pods(world, ns, "HydrationStarted"):
        make_waiting_pod(world, ns)
    fill(world, ns)


def test_end_of_the_pod_of_a_job_reaches_the_pod_after_a_list_of_pods_failed(world, ns):
    """The pod of the Job is deleted before."""
    pods = f"/api/v1/namespaces/{OURS}/pods"
    with denied_lists_of_pods(world, ns, "JobFailed"):
        make_waiting_pod(world, ns)
        pod = wait_for(lambda: world.items(pods), what="a pod of the Job")[0]["metadata"]["name"]
        world.cluster.patch(f"{pods}/{pod}/status", {"status": {"phase": "Failed", "reason": "OutOfpods", "message": "no room"}})
        wait_for(lambda: pod not in [p["metadata"]["name"] for p in world.items(pods)], what="that pod is deleted")
    fill(world, ns)


def test_pod_in_user_namespace_is_looked_for_again_after_a_list_of_pods_failed(world, ns):
    """Also if nothing else changes the volume."""
    for node in world.nodes:
        world.cluster.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"nodeInfo": {"kernelVersion": "6.1.0"}}})
    pods = f"/namespaces/{ns}/pods"
    world.proxy.fault("GET", pods, status(403, "Forbidden"), times=None)
    try:
        world.make_claim(ns)
        world.make_pod(ns, hostUsers=False)
        world.wait_for_bound(ns)
        wait_for(lambda: not world.jobs(), what="the Job is deleted")
        assert world.proxy.seen("GET", pods) and not told(world, ns, "UserNamespaceUnsupported")
    finally:
        world.proxy.no_faults()
    wait_for(lambda: told(world, ns, "UserNamespaceUnsupported") == {"PersistentVolumeClaim", "Pod"}, what="the event of both")
