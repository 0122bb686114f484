# SPDX-License-Identifier: Apache-2.0
"""A claim that names a BucketSource, through the real control plane and provisioner: the prime claim, the Job, the
hand-over; and every deletion, fault and death on the way."""

import random
import signal
import time

import pytest

from integration.lib.claims import API, OURS, condition, wait_for

FINALIZER = "cistern.io/populate-target-protection"


@pytest.mark.tsan
def test_a_claim_is_filled_and_bound_and_no_object_of_cistern_is_left(world, ns):
    world.make_claim(ns, labels={"team": "a"})
    world.make_pod(ns)
    bound = world.wait_for_bound(ns)
    pv = wait_for(lambda: world.cluster.get(f"/api/v1/persistentvolumes/{bound['spec']['volumeName']}"))
    assert pv["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    assert pv["metadata"]["annotations"]["cistern.io/populated-from"] == f"{ns}/data"
    wait_for(lambda: FINALIZER not in world.claim(ns)["metadata"]["finalizers"])
    wait_for(lambda: not world.primes() and not world.jobs())
    pod = wait_for(lambda: (p := world.cluster.get(f"/api/v1/namespaces/{ns}/pods/pod"))["spec"].get("nodeName") and p)
    volume = world.cluster.get(f"{API}/cisternvolumes/{pv['metadata']['name']}")
    assert volume["spec"]["nodeName"] == pod["spec"]["nodeName"]
    assert volume["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    wait_for(lambda: world.events(ns, "HydrationStarted") and world.events(ns, "HydrationFinished"))


def test_a_class_that_retains_retains_what_was_handed_over_and_nothing_before(world, ns):
    world.make_class(f"retain-{ns}", policy="Retain")
    world.every_node(hydrates=False)
    world.make_claim(ns, "given-up", cls=f"retain-{ns}")
    world.make_claim(ns, "kept", cls=f"retain-{ns}")
    world.make_pod(ns, "given-up", "a")
    world.make_pod(ns, "kept", "b")
    wait_for(lambda: len(world.jobs()) == 2)
    wait_for(lambda: [pv["spec"]["persistentVolumeReclaimPolicy"] for pv in world.pvs()] == ["Delete", "Delete"])
    world.end_pod(ns, "a")
    world.delete_claim(ns, "given-up")
    wait_for(lambda: world.is_gone(ns, "given-up"))
    wait_for(lambda: len(world.pvs()) == 1)
    world.every_node(hydrates=True)
    world.wait_for_bound(ns, "kept")
    pv = world.pvs()[0]
    assert pv["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert "cistern.io/reclaim-policy" not in pv["metadata"]["annotations"]
    world.cluster.patch(f"/api/v1/persistentvolumes/{pv['metadata']['name']}",
                        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})


def test_a_volume_that_is_made_after_its_prime_claim_went_is_not_retained(world, ns):
    """The class retains volumes. The provisioner continues although the claim was deleted."""
    world.make_class(f"retain-{ns}", policy="Retain")
    world.every_node(silent=True)
    world.make_claim(ns, cls=f"retain-{ns}")
    world.make_pod(ns)
    wait_for(world.volumes)
    world.end_pod(ns)
    world.delete_claim(ns)
    wait_for(lambda: not world.primes())
    world.every_node(silent=False)
    wait_for(lambda: world.is_gone(ns))
    world.wait_for_nothing_left()


def test_a_claim_may_be_called_as_a_prime_claim_is(world, ns):
    world.make_claim(ns, "prime-0")
    world.make_pod(ns, "prime-0")
    world.wait_for_bound(ns, "prime-0")
    wait_for(lambda: FINALIZER not in world.claim(ns, "prime-0")["metadata"]["finalizers"])
    assert not world.events(ns, "PopulateAbandoned")


def test_a_retained_volume_is_filled_for_the_claim_that_it_is_given_to(world, ns):
    world.make_class(f"retain-{ns}", policy="Retain")
    world.every_node(hydrates=False)
    world.make_claim(ns, cls=f"retain-{ns}", annotations={"cistern.io/hydration": "gate"})
    world.make_pod(ns)
    name = world.wait_for_bound(ns)["spec"]["volumeName"]
    wait_for(world.jobs)
    world.end_pod(ns)
    world.delete_claim(ns)
    wait_for(lambda: world.is_gone(ns) and not world.jobs())  # its claim is deleted, so no Job fills it
    world.cluster.patch(f"/api/v1/persistentvolumes/{name}", {"spec": {"claimRef": None}})
    world.cluster.create(f"/api/v1/namespaces/{ns}/persistentvolumeclaims", {"metadata": {"name": "next"}, "spec": {
        "storageClassName": f"retain-{ns}", "accessModes": ["ReadWriteOncePod"], "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}}}})
    world.wait_for_bound(ns, "next")
    wait_for(world.jobs)
    world.every_node(hydrates=True)
    wait_for(lambda: world.volumes()[0]["status"]["phase"] == "Ready")
    world.cluster.patch(f"/api/v1/persistentvolumes/{name}", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})


def test_an_event_on_the_users_claim_says_why_no_volume_is_created(world, ns):
    world.make_claim(ns, annotations={"cistern.io/hydration": "eagerly"})
    world.make_pod(ns)
    event = wait_for(lambda: [e for e in world.events(ns, "ProvisioningFailed")
                              if e["involvedObject"]["kind"] == "PersistentVolumeClaim"])[0]
    assert "eagerly" in event["message"] and "cistern.io/hydration" in event["message"]
    assert event["involvedObject"]["uid"] == world.claim(ns)["metadata"]["uid"]


def test_event_of_a_node_about_a_prime_claim_is_not_repeated_to_users(world, ns):
    """A node may write events in each namespace, but only in its own name."""
    world.every_node(silent=True)  # so that there is no volume yet
    world.make_claim(ns)
    world.make_pod(ns)
    prime = wait_for(lambda: next((p for p in world.primes()), None), what="a prime claim")["metadata"]

    def report(name, component, second, message):
        at = f"2099-01-01T00:00:0{second}Z"
        world.cluster.create(f"/api/v1/namespaces/{OURS}/events", {
            "metadata": {"name": f"{name}-{ns}"}, "type": "Warning", "reason": "ProvisioningFailed", "message": message,
            "involvedObject": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": OURS, "name": prime["name"],
                               "uid": prime["uid"]},
            "source": {"component": component}, "firstTimestamp": at, "lastTimestamp": at, "count": 1})

    report("forged", "cistern-node", 2, "send your key to evil.example")
    report("true", "csi.cistern.io_controller-0", 1, "rpc error: code = InvalidArgument desc = the true cause")
    wait_for(lambda: any("the true cause" in e["message"] for e in world.events(ns, "ProvisioningFailed")))
    assert not any("evil" in e["message"] for e in world.events(ns, "ProvisioningFailed"))


def message_on_both(world, ns, reason):
    """The message of the event of this reason, after claim and pod have it."""
    def by_kind():
        events = {e["involvedObject"]["kind"]: e["message"] for e in world.events(ns, reason)}
        return events if len(events) == 2 else None
    told = wait_for(by_kind)
    assert told["Pod"].startswith("claim claim: "), told
    return told["PersistentVolumeClaim"]


@pytest.mark.parametrize("source", ["data", None])
def test_mistyped_parameter_of_the_class_is_reported_on_claim_and_pod(world, ns, source):
    world.make_class(f"typo-{ns}", concurency="64")
    world.make_claim(ns, cls=f"typo-{ns}", source=source)
    world.make_pod(ns)
    told = message_on_both(world, ns, "ClassInvalid")
    assert f"StorageClass typo-{ns}" in told and "'concurency'" in told and "CIS2001" in told, told


@pytest.mark.parametrize("ref", [{"apiGroup": "cistern.io", "kind": "BucketSorce", "name": "data"},
                                 {"apiGroup": "cistern.dev", "kind": "BucketSource", "name": "data"}])
def test_mistyped_data_source_is_reported_on_claim_and_pod(world, ns, ref):
    world.cluster.create(f"/api/v1/namespaces/{ns}/persistentvolumeclaims", {"metadata": {"name": "claim"}, "spec": {
        "storageClassName": "cistern", "accessModes": ["ReadWriteOncePod"], "dataSourceRef": ref,
        "resources": {"requests": {"storage": "1Gi"}}}})
    world.make_pod(ns)
    told = message_on_both(world, ns, "DataSourceInvalid")
    assert f"'{ref['kind']}' of apiGroup '{ref['apiGroup']}'" in told and "kind: BucketSource" in told, told


def test_pod_gets_the_events_of_its_claim(world, ns):
    world.make_claim(ns)
    world.make_pod(ns)
    assert message_on_both(world, ns, "HydrationStarted").startswith("hydrating ")


def test_objects_of_a_kind_are_counted_for_the_alert(world, ns):
    def is_right():
        return world.metric('cistern_objects{resource="bucketsources"}') == len(world.items(f"{API}/bucketsources"))

    world.make_source(ns, "second")
    wait_for(is_right)
    world.cluster.delete(f"{API}/namespaces/{ns}/bucketsources/second")
    wait_for(is_right)


@pytest.mark.parametrize("metric", ["cistern_objects", "cistern_objects_over_limit"])
def test_copies_that_decide_nothing_are_not_in_the_metrics_of_the_limit(world, metric):
    text = "\n".join(world.series(metric))
    assert 'resource="persistentvolumeclaims"' in text and 'resource="jobs"' in text
    assert 'resource="events"' not in text and 'resource="pods"' not in text, text


# ---- pods in user namespaces

@pytest.fixture
def kernel(world):
    """Sets the kernel of all nodes."""
    def run(version):
        for node in world.nodes:
            world.cluster.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"nodeInfo": {"kernelVersion": version}}})
    yield run
    run("")


def user_namespace_events(world, ns):
    return {e["involvedObject"]["name"]: e["message"] for e in world.events(ns, "UserNamespaceUnsupported")}


@pytest.mark.parametrize("version, access, is_reported", [("6.1.0-18-amd64", "auto", True), ("6.12.3", "auto", False), ("6.1.0", "bind", False)])
def test_pod_in_user_namespace_gets_an_event_about_an_old_kernel_before_its_volume_is_filled(world, ns, kernel, version, access, is_reported):
    kernel(version)
    world.every_node(hydrates=False)
    world.make_class(f"class-{ns}", access=access)
    world.make_claim(ns, cls=f"class-{ns}")
    world.make_pod(ns, hostUsers=False)
    wait_for(lambda: {e["involvedObject"]["kind"] for e in world.events(ns, "HydrationStarted")} == {"PersistentVolumeClaim", "Pod"}, 40)
    told = user_namespace_events(world, ns)
    assert told.keys() == ({"claim", "pod"} if is_reported else set()), told
    for message in told.values():
        assert "CIS3026" in message and version in message and "access: bind" in message, message


def test_later_pod_in_user_namespace_gets_an_event_about_an_old_kernel_when_the_volume_is_mounted(world, ns, kernel):
    kernel("5.15.0")
    world.make_claim(ns)
    world.make_pod(ns, name="first")
    name = world.wait_for_bound(ns)["spec"]["volumeName"]
    world.end_pod(ns, "first")
    world.make_pod(ns, name="second", hostUsers=False)
    assert not user_namespace_events(world, ns)
    volume = world.cluster.get(f"{API}/cisternvolumes/{name}")
    world.nodes[0].tell(volume, conditions=[condition("Mounted", "True", "Staged")])
    assert "second" in wait_for(lambda: user_namespace_events(world, ns))


@pytest.mark.parametrize("step", ["before a pod", "guarded", "job", "bound"])
def test_a_claim_may_be_deleted_at_every_step(world, ns, step):
    world.every_node(hydrates=step == "bound", silent=step == "guarded")
    world.make_claim(ns)
    if step != "before a pod":
        world.make_pod(ns)
    if step == "guarded":
        wait_for(world.primes)
    if step == "job":
        wait_for(world.jobs)
    if step == "bound":
        world.wait_for_bound(ns)
    if step != "before a pod":
        world.end_pod(ns)
    world.delete_claim(ns)
    world.every_node(silent=False)
    if step == "job":
        wait_for(lambda: all("deletionTimestamp" in j["metadata"] for j in world.jobs()), what="the job is cancelled")
    wait_for(lambda: world.is_gone(ns))
    assert step == "bound" or (not world.primes() and not world.jobs())
    world.wait_for_nothing_left()


@pytest.mark.parametrize("first", ["source", "class", "namespace"])
def test_source_and_class_of_a_claim_can_be_deleted_first(world, ns, first):
    world.make_class(f"own-{ns}")
    world.every_node(hydrates=False)
    world.make_claim(ns, cls=f"own-{ns}")
    world.make_pod(ns)
    wait_for(world.jobs)
    if first == "source":
        world.cluster.delete(f"{API}/namespaces/{ns}/bucketsources/data")
    if first == "class":
        world.cluster.delete(f"/apis/storage.k8s.io/v1/storageclasses/own-{ns}")
    if first == "namespace":
        world.cluster.delete(f"/api/v1/namespaces/{ns}")
        world.end_pod(ns)
    else:
        world.every_node(hydrates=True)
        world.wait_for_bound(ns)  # it goes on with the copy that was made
        world.end_pod(ns)
        world.delete_claim(ns)
    wait_for(lambda: world.is_gone(ns))
    world.wait_for_nothing_left()


@pytest.mark.parametrize("source", ["data", None])
def test_a_claim_larger_than_every_pool_says_so_on_itself_and_its_pod(world, ns, source):
    """The only event was the scheduler's: "not enough free storage", without a number."""
    world.make_claim(ns, source=source, size="500Gi")
    world.make_pod(ns)
    events = wait_for(lambda: len(e := world.events(ns, "PoolsFull")) >= 2 and e)
    assert {e["involvedObject"]["kind"] for e in events} == {"PersistentVolumeClaim", "Pod"}
    for event in events:
        assert "500Gi requested: the largest pool 'default' has 90.0 GiB free, on node node-" in event["message"]
        assert "request less" in event["message"]


def test_a_full_node_is_left_for_another(world, ns):
    world.every_node(hydrates=False)
    world.nodes[0].full = world.nodes[1].full = True
    world.make_claim(ns)
    world.make_pod(ns)
    wait_for(lambda: world.events(ns, "NodeFull"))
    world.nodes[1].full = False
    world.nodes[1].hydrates = True
    bound = world.wait_for_bound(ns)
    pv = world.cluster.get(f"/api/v1/persistentvolumes/{bound['spec']['volumeName']}")
    assert world.cluster.get(f"{API}/cisternvolumes/{pv['metadata']['name']}")["spec"]["nodeName"] == "node-1"
    wait_for(lambda: not world.primes())


def test_a_cordoned_node_is_left_and_the_copy_begins_elsewhere(world, ns):
    world.every_node(hydrates=False)
    world.make_claim(ns)
    world.make_pod(ns)
    job = wait_for(world.jobs)[0]
    first = job["spec"]["template"]["spec"]["nodeName"]
    world.cluster.patch(f"/api/v1/nodes/{first}", {"spec": {"unschedulable": True}})
    try:
        for node in world.nodes:
            node.hydrates = node.name != first
        world.wait_for_bound(ns)
        assert {v["spec"]["nodeName"] for v in world.volumes() if "release" not in v["spec"]} != {first}
    finally:
        world.cluster.patch(f"/api/v1/nodes/{first}", {"spec": {"unschedulable": None}})


def test_a_pod_of_a_job_that_is_killed_is_followed_by_another(world, ns):
    world.every_node(hydrates=False)
    world.make_claim(ns)
    world.make_pod(ns)
    pod = wait_for(lambda: world.items(f"/api/v1/namespaces/{OURS}/pods"))[0]
    world.cluster.delete(f"/api/v1/namespaces/{OURS}/pods/{pod['metadata']['name']}")
    world.every_node(hydrates=True)
    world.wait_for_bound(ns)


def test_a_denied_source_is_reported_and_continues_after_access_is_granted(world, ns):
    world.every_node(fault={"object": "data/a", "id": "CIS1403", "code": "DENIED", "message": "403 storage.objects.get",
                            "attempts": 1})
    world.make_claim(ns)
    world.make_pod(ns)
    event = wait_for(lambda: world.events(ns, "SourceDenied"))[0]
    assert "403" in event["message"] and event["type"] == "Warning"
    status = wait_for(lambda: (s := world.cluster.get(f"{API}/namespaces/{ns}/bucketsources/data").get("status", {}))
                      .get("phase") == "Degraded" and s)
    assert status["lastError"]["id"] == "CIS1403"
    wait_for(lambda: world.metric("cistern_claim_failing") == 1)
    world.every_node(fault=None)
    world.wait_for_bound(ns)
    wait_for(lambda: world.metric("cistern_claim_failing") == 0)
    status = wait_for(lambda: (s := world.cluster.get(f"{API}/namespaces/{ns}/bucketsources/data")["status"])
                      ["phase"] == "Ready" and s)
    assert status["volumes"]["ready"] == 1 and status["listing"]["objects"] == 2


def test_operations_are_counted_while_they_are_in_flight_and_not_after(world, ns):
    done = world.metric("volume_populator_operation_seconds_count")
    world.every_node(hydrates=False)
    for name in ("bound", "deleted"):
        world.make_claim(ns, name)
        world.make_pod(ns, name, f"pod-of-{name}")
    wait_for(lambda: world.metric("volume_populator_operations_in_flight") == 2)
    world.end_pod(ns, "pod-of-deleted")
    world.delete_claim(ns, "deleted")
    wait_for(lambda: world.metric("volume_populator_operations_in_flight") == 1)
    world.every_node(hydrates=True)
    world.wait_for_bound(ns, "bound")
    wait_for(lambda: world.metric("volume_populator_operations_in_flight") == 0)
    assert world.metric("volume_populator_operation_seconds_count") == done + 2


def test_a_waiting_claim_has_an_event_with_the_cause(world, ns):
    world.make_claim(ns, "early", source="later")
    world.make_class(f"at-once-{ns}", mode="Immediate")
    world.make_claim(ns, "at-once", cls=f"at-once-{ns}")
    wait_for(lambda: world.events(ns, "SourceNotFound") and world.events(ns, "ImmediateBindingUnsupported"))
    world.make_source(ns, "later")
    world.make_pod(ns, "early")
    world.wait_for_bound(ns, "early")


def test_gate_binds_at_once_and_the_job_runs_after(world, ns):
    world.every_node(hydrates=False)
    world.make_claim(ns, source=None, annotations={"cistern.io/source": "data"})
    world.make_pod(ns)
    world.wait_for_bound(ns)
    assert not world.primes()
    wait_for(world.jobs)
    world.every_node(hydrates=True)
    wait_for(lambda: not world.jobs())


def test_a_generic_ephemeral_volume_is_filled_and_goes_with_its_pod(world, ns):
    world.cluster.create(f"/api/v1/namespaces/{ns}/pods", {"metadata": {"name": "pod"}, "spec": {
        "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "storageClassName": "cistern", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSourceRef": {"apiGroup": "cistern.io", "kind": "BucketSource", "name": "data"}}}}}]}})
    world.wait_for_bound(ns, "pod-v")
    world.end_pod(ns)
    wait_for(lambda: world.is_gone(ns, "pod-v"))
    world.wait_for_nothing_left()


def test_the_controller_may_die_at_every_step(world, ns):
    """Ever again, a moment after it began to lead: until the claims are bound, and again until they are gone."""
    random.seed(5)
    names = [f"claim-{n}" for n in range(4)]
    for name in names:
        world.make_claim(ns, name)
        world.make_pod(ns, name, f"pod-of-{name}")

    def die_until(done):
        for _ in range(40):
            time.sleep(random.uniform(0.05, 0.6))
            if done():
                return
            world.kill("controller0", signal.SIGKILL)
            world.forget_leader()
            led = world.log().count("event=leading ")
            world.start_controller()
            wait_for(lambda: world.log().count("event=leading ") > led, what="somebody leads")
        assert done()

    die_until(lambda: all(world.claim(ns, n)["status"]["phase"] == "Bound" for n in names))
    for name in names:
        world.end_pod(ns, f"pod-of-{name}")
        world.delete_claim(ns, name)
    die_until(lambda: all(world.is_gone(ns, n) for n in names) and not world.volumes())
    world.wait_for_nothing_left(60)


def test_two_replicas_make_one_of_everything_and_the_second_goes_on_for_the_first(world, ns):
    world.every_node(hydrates=False)
    world.start_controller(1)
    world.make_claim(ns)
    world.make_pod(ns)
    wait_for(world.jobs)
    assert len(world.primes()) == len(world.jobs()) == len(world.pvs()) == 1
    led = world.log("controller1").count("event=leading ")
    world.kill("controller0", signal.SIGTERM)  # gives the lease back
    wait_for(lambda: world.log("controller1").count("event=leading ") > led, what="the second leads")
    world.every_node(hydrates=True)
    world.wait_for_bound(ns)
    world.start_controller()
    world.kill("controller1", signal.SIGTERM)


# ---- what of a source holds at once --------------------------------------------------------------------------------------

def change_source(world, ns, **spec):
    world.cluster.patch(f"{API}/namespaces/{ns}/bucketsources/data", {"spec": spec})


def test_retry_of_a_source_reaches_the_volumes_that_exist_and_wakes_their_node(world, ns):
    world.every_node(hydrates=False)
    world.make_claim(ns)
    world.make_pod(ns)
    wait_for(world.jobs)
    volume = world.volumes()[0]
    assert "retry" not in volume["spec"]
    pool = f"{API}/cisternpools/{volume['spec']['nodeName']}.default"
    woken = world.cluster.get(pool)["spec"].get("volumesGeneration", 0)
    change_source(world, ns, retry={"maxAttempts": 3, "backoffCap": "2s"}, priority=["a"])
    new = wait_for(lambda: world.volumes()[0]["spec"].get("retry"))
    assert new == {"maxAttempts": 3, "maxElapsed": "1800000ms", "backoffBase": "250ms", "backoffCap": "2000ms"}
    wait_for(lambda: world.cluster.get(pool)["spec"].get("volumesGeneration", 0) > woken)
    assert world.volumes()[0]["spec"]["source"] == volume["spec"]["source"]  # all else was copied for good
    change_source(world, ns, retry=None)
    wait_for(lambda: world.volumes()[0]["spec"]["retry"]["maxAttempts"] == 8)
    world.every_node(hydrates=True)
    world.wait_for_bound(ns)


def suspend_while_it_is_filled(world, ns):
    world.every_node(hydrates=False)
    world.make_claim(ns)
    world.make_pod(ns)
    wait_for(world.jobs)
    change_source(world, ns, suspend=True)


def test_a_source_that_is_suspended_ends_its_jobs_at_once_and_goes_on_when_it_is_not(world, ns):
    suspend_while_it_is_filled(world, ns)
    wait_for(lambda: not [j for j in world.jobs() if "deletionTimestamp" not in j["metadata"]], what="the job is ended")
    wait_for(lambda: not world.jobs())  # its pod works until then
    world.every_node(hydrates=True)
    assert world.primes() and world.claim(ns)["status"]["phase"] == "Pending"
    change_source(world, ns, suspend=False)
    wait_for(lambda: world.jobs() or world.claim(ns)["status"]["phase"] == "Bound", what="it goes on")
    world.wait_for_bound(ns)


def test_the_volumes_of_a_suspended_source_go_on_with_its_successor(world, ns):
    suspend_while_it_is_filled(world, ns)
    wait_for(lambda: not world.jobs(), what="its job has ended")
    world.every_node(hydrates=True)
    world.cluster.delete(f"{API}/namespaces/{ns}/bucketsources/data")
    world.make_source(ns)
    world.wait_for_bound(ns)


def test_a_repeated_failure_is_reported_once_a_minute(world, ns):
    world.every_node(fault={"object": "data/a", "id": "CIS1429", "code": "AGAIN", "message": "503", "attempts": 8})
    world.make_claim(ns)
    world.make_pod(ns)
    failed = world.log().count('event="job failed"')
    wait_for(lambda: world.log().count('event="job failed"') >= failed + 4, what="four Jobs fail")
    told = wait_for(lambda: [e for r in ("HydrationFailed", "HydrationRetrying") for e in world.events(ns, r)])
    seen = [(e["involvedObject"]["kind"], e.get("count", 1), "503" in e["message"]) for e in told]
    assert sorted(seen) == [("PersistentVolumeClaim", 1, True), ("Pod", 1, True)], told
    world.every_node(fault=None)
    world.wait_for_bound(ns)


def test_last_fault_is_reported_after_another_of_the_same_reason(world, ns):
    fault = {"object": "data/a", "id": "CIS1403", "code": "DENIED", "message": "while it retried", "attempts": 1}
    world.every_node(fault=fault)
    world.make_claim(ns)
    world.make_pod(ns)
    wait_for(lambda: {e["involvedObject"]["kind"] for e in world.events(ns, "SourceDenied")} == {"PersistentVolumeClaim", "Pod"})
    world.every_node(silent=True, fault=dict(fault, message="as it ended"))
    world.make_pod(ns, name="late")  # an object has one event of a reason a minute, and this pod none yet
    world.every_node(silent=False)
    wait_for(lambda: [e for v in world.volumes() for e in v["status"].get("errors", []) if "ended" in e["message"]])
    world.every_node(silent=True)
    wait_for(lambda: [e for e in world.events(ns, "SourceDenied") if e["involvedObject"]["name"] == "late" and "ended" in e["message"]])
    world.every_node(silent=False, fault=None)
    world.wait_for_bound(ns)


@pytest.mark.parametrize("status, reason, said", [
    ({"phase": "Pending", "containerStatuses": [{"name": "hydrate", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
                                                 "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}]},
     "JobNotStarted", "ImagePullBackOff: no such tag"),
    ({"phase": "Failed", "reason": "OutOfpods", "message": "Node didn't have enough resource: pods"}, "JobFailed",
     "OutOfpods: Node didn't have enough resource"),
], ids=["image", "rejected"])
def test_cause_why_the_pod_of_a_job_does_not_run_is_an_event_of_claim_and_pod(world, ns, status, reason, said):
    """It is in the namespace of Cistern, which the owner of the claim does not see."""
    world.every_node(hydrates=False)
    try:
        world.make_claim(ns)
        world.make_pod(ns)
        pods = f"/api/v1/namespaces/{OURS}/pods"

        def own_pod():
            uid = world.claim(ns)["metadata"]["uid"]
            return next((p["metadata"]["name"] for p in world.items(pods)
                         if p["metadata"].get("labels", {}).get("cistern.io/claim-uid") == uid), None)

        name = wait_for(own_pod, what="a pod of the Job")
        world.cluster.patch(f"{pods}/{name}/status", {"status": status})

        def told():
            found = {e["involvedObject"]["kind"]: e["message"] for e in world.events(ns, reason)}
            return found if len(found) == 2 else None

        messages = wait_for(told, what=f"{reason} on claim and pod")
        assert all(said in text for text in messages.values()), messages
    finally:
        world.every_node(hydrates=True)
    world.wait_for_bound(ns)
