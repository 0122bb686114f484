# SPDX-License-Identifier: Apache-2.0
"""A hydration that takes longer than the scheduler waits: ten minutes by default, three seconds here. A source of another
namespace, while a ReferenceGrant allows it."""
import pytest

from integration.lib.claims import API, running_world, wait_for

GRANTS = "/apis/gateway.networking.k8s.io/v1beta1"
SELECTED = "volume.kubernetes.io/selected-node"


@pytest.fixture(scope="module")
def world():
    with running_world(flags=["--cross-namespace"], bind_seconds=3,
                       api_flags=["--feature-gates=CrossNamespaceVolumeDataSource=true"]) as w:
        yield w


# ---- the scheduler


def gave_up(world, ns):
    """How often the scheduler waited in vain."""
    return sum(e.get("count") or e.get("series", {}).get("count", 1) for e in world.events(ns, "FailedScheduling")
               if "timed out" in e["message"] or "deadline" in e["message"])


def made(world):
    """All that was ever made for the claim, if it was made once."""
    things = [*world.primes(), *world.jobs(), *world.volumes(), *world.pvs()]
    assert len(things) == 4, [t["metadata"]["name"] for t in things]
    return [t["metadata"]["uid"] for t in things], world.volumes()[0]["spec"]["nodeName"]


def begin(world, ns):
    world.every_node(hydrates=False)
    world.make_claim(ns)
    world.make_pod(ns)
    wait_for(lambda: world.pvs() and world.jobs() and world.volumes()[0].get("status", {}).get("phase") == "Hydrating")
    return made(world)


def pod_comes_to(world, ns, node):
    world.every_node(hydrates=True)
    world.wait_for_bound(ns)
    path = f"/api/v1/namespaces/{ns}/pods/pod"
    assert wait_for(lambda: world.cluster.get(path)["spec"].get("nodeName")) == node


def test_a_scheduler_that_gives_up_waiting_disturbs_no_hydration(world, ns):
    things, node = begin(world, ns)
    wait_for(lambda: gave_up(world, ns) >= 2, what="the scheduler gives up twice")
    assert made(world) == (things, node)
    assert world.claim(ns)["metadata"]["annotations"][SELECTED] == node
    pod_comes_to(world, ns, node)


def test_a_claim_that_lost_its_node_gets_it_back_and_its_pod_comes_to_what_is_filled(world, ns):
    things, node = begin(world, ns)
    world.cluster.patch(f"/api/v1/namespaces/{ns}/persistentvolumeclaims/claim", {"metadata": {"annotations": {SELECTED: None}}})
    wait_for(lambda: world.claim(ns)["metadata"]["annotations"].get(SELECTED) == node)
    wait_for(lambda: gave_up(world, ns) >= 1, what="the scheduler comes to the same node and waits again")
    assert made(world) == (things, node)
    pod_comes_to(world, ns, node)


# ---- another namespace


@pytest.fixture(scope="module")
def grants(world):
    world.cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "metadata": {"name": "referencegrants.gateway.networking.k8s.io", "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/1538"}},
        "spec": {"group": "gateway.networking.k8s.io", "scope": "Namespaced",
                 "names": {"kind": "ReferenceGrant", "listKind": "ReferenceGrantList", "plural": "referencegrants",
                           "singular": "referencegrant"},
                 "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}})
    world.cluster.kubectl("wait", "--for=condition=Established", "crd/referencegrants.gateway.networking.k8s.io", "--timeout=30s")


def grant(world, owner, user, name="grant", source=None):
    to = {"group": "cistern.io", "kind": "BucketSource"} | ({"name": source} if source else {})
    world.cluster.create(f"{GRANTS}/namespaces/{owner}/referencegrants", {
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": {"name": name},
        "spec": {"from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": user}], "to": [to]}})


def claim_of(world, ns, owner, name="claim", has_pod=True):
    world.cluster.create(f"/api/v1/namespaces/{ns}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": {
        "storageClassName": "cistern", "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": {"apiGroup": "cistern.io", "kind": "BucketSource", "name": "data", "namespace": owner}}})
    if has_pod:
        world.make_pod(ns, name, f"pod-of-{name}")


def owner_of(world, ns):
    world.make_namespace(f"owner-of-{ns}")
    world.make_source(f"owner-of-{ns}")
    return f"owner-of-{ns}"


def test_a_source_of_another_namespace_waits_for_its_owners_grant(world, ns, grants):
    owner = owner_of(world, ns)
    grant(world, owner, "somebody-else", "other-user")
    grant(world, owner, ns, "other-source", source="another")
    claim_of(world, ns, owner)
    event = wait_for(lambda: world.events(ns, "SourceDenied"))[0]
    assert "CIS5202" in event["message"] and f"{owner}/data" in event["message"]
    assert not world.primes()
    grant(world, owner, ns, source="data")
    bound = world.wait_for_bound(ns)
    volume = world.cluster.get(f"{API}/cisternvolumes/{bound['spec']['volumeName']}")
    assert volume["spec"]["source"]["namespace"] == owner


def test_a_grant_that_is_taken_back_stops_new_claims_and_no_volume_that_exists(world, ns, grants):
    owner = owner_of(world, ns)
    grant(world, owner, ns)
    world.every_node(hydrates=False)
    claim_of(world, ns, owner, "early")
    wait_for(world.jobs)
    world.cluster.delete(f"{GRANTS}/namespaces/{owner}/referencegrants/grant")
    claim_of(world, ns, owner, "late", has_pod=False)
    wait_for(lambda: world.events(ns, "SourceDenied"))  # the controller has seen the deletion
    world.make_pod(ns, "late", "pod-of-late")
    wait_for(lambda: world.claim(ns, "late")["metadata"].get("annotations", {}).get(SELECTED))
    assert len(world.primes()) == 1
    world.every_node(hydrates=True)
    world.wait_for_bound(ns, "early")
    assert not world.claim(ns, "late")["spec"].get("volumeName")


def lists_of_grants(world):
    lines = world.cluster.kubectl("get", "--raw", "/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("apiserver_request_total{")
               and all(word in line for word in ('resource="referencegrants"', 'verb="LIST"')))


def test_claims_that_wait_for_a_grant_send_no_requests_for_it(world, ns, grants):
    owner, count = owner_of(world, ns), 10
    for number in range(count):
        claim_of(world, ns, owner, f"claim-{number}", has_pod=False)
    wait_for(lambda: len(world.events(ns, "SourceDenied")) == count)
    before, reconciled = lists_of_grants(world), world.log().count("next=nothing")
    for round in range(3):
        for number in range(count):
            world.cluster.patch(f"/api/v1/namespaces/{ns}/persistentvolumeclaims/claim-{number}",
                                {"metadata": {"annotations": {"round": str(round)}}})
    wait_for(lambda: world.log().count("next=nothing") >= reconciled + count)
    assert lists_of_grants(world) == before
    grant(world, owner, ns)
    world.make_pod(ns, "claim-0", "pod")
    world.wait_for_bound(ns, "claim-0")
