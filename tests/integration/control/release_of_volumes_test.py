# SPDX-License-Identifier: Apache-2.0
"""Releases and the leader's clean-up: no volume is deleted without a request, and no volume without an owner stays."""

import signal
import threading
import time

import grpc
import pytest

from integration.lib.control import (NAMESPACE, POOLS, VOLUMES, condition, eventually, make_claim, make_pv, make_source,
                                     new_name, order, remove)
from servers.kubernetes import ApiError

Code = grpc.StatusCode
QUICK = ("--node-gone-grace=2s", "--sweep-interval=1s")


def made(controller, cluster, **options):
    name = new_name()
    return name, controller.create(name, node="node-a", **options).volume_id


def status_of(cluster, name, kind):
    return {c["type"]: c for c in (order(cluster, name) or {}).get("status", {}).get("conditions", [])}.get(kind)


# ---- release ----------------------------------------------------------------------------------------------------------

@pytest.mark.asan
def test_a_volume_goes_when_its_node_says_so_and_the_order_with_it(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    controller.delete(volume_id)
    assert order(cluster, name) is None and node.volumes == {}
    controller.delete(volume_id)


def test_release_reports_the_remainder_and_then_ends(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    answers = node.releases
    node.releases = lambda order: {"phase": "Exporting", "export": {"pendingObjects": 3, "pendingBytes": 2048},
                                   "conditions": [condition("Provisioned", "True", "Provisioned")]}
    code, text = controller.delete_fails(volume_id, timeout=4)
    assert code == Code.ABORTED and "3 files, 2.00 KiB, are still to be exported" in text
    assert order(cluster, name)["spec"]["release"] == {"requested": True, "discard": False}
    node.releases = answers
    node.carry_out_orders()
    eventually(lambda: order(cluster, name) is None)  # the leader need not wait for the next call
    controller.delete(volume_id)


@pytest.mark.asan
def test_a_file_that_is_not_exported_keeps_the_volume_until_an_administrator_says_its_id(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    claim = make_claim(cluster, "c", volume=name)
    make_pv(cluster, name, volume_id, claim)

    def fail_unless_discarded(asked):
        if asked["spec"]["release"].get("discard"):
            return node.release(asked)
        return {"phase": "ExportFailed", "conditions": [condition("Provisioned", "True", "Provisioned")], "export": {
            "failedObjects": 3, "doneObjects": 9, "failed": [{"path": "ckpt/step-900.pt", "id": "CIS1503",
                                                              "message": "503"}]}}
    node.releases = fail_unless_discarded
    code, text = controller.delete_fails(volume_id)
    assert code == Code.FAILED_PRECONDITION
    assert "3 of 12 files not exported, first ckpt/step-900.pt: 503 (CIS1503" in text
    told = eventually(lambda: [e for e in cluster.get("/api/v1/events")["items"] if e["reason"] == "ExportBlocksDelete"])
    assert told[0]["involvedObject"]["kind"] in ("PersistentVolume", "PersistentVolumeClaim")
    path = f"/api/v1/persistentvolumes/{name}"
    cluster.patch(path, {"metadata": {"annotations": {"cistern.io/discard-unexported": "v1-another"}}})
    assert controller.delete_fails(volume_id)[0] == Code.FAILED_PRECONDITION
    cluster.patch(path, {"metadata": {"annotations": {"cistern.io/discard-unexported": volume_id}}})
    controller.delete(volume_id)
    assert order(cluster, name) is None


def test_a_word_on_a_copied_manifest_discards_nothing(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    make_pv(cluster, "copy", volume_id, annotations={"cistern.io/discard-unexported": volume_id})
    node.releases = lambda asked: None
    controller.delete_fails(volume_id, timeout=3)
    assert order(cluster, name)["spec"]["release"]["discard"] is False


def test_a_primes_volume_that_was_never_handed_over_is_discarded(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    prime = make_claim(cluster, "prime-1", NAMESPACE, volume=name)
    make_pv(cluster, name, volume_id, prime)
    node.releases = lambda asked: None
    controller.delete_fails(volume_id, timeout=3)
    assert order(cluster, name)["spec"]["release"]["discard"] is True


def test_a_mounted_volume_is_not_released(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    node.releases = lambda asked: {"phase": "Ready", "conditions": [condition("Provisioned", "True", "Provisioned"),
                                                                    condition("Mounted", "True", "Staged")]}
    code, text = controller.delete_fails(volume_id, timeout=4)
    assert code == Code.FAILED_PRECONDITION and "still mounted on node node-a" in text


def test_volume_unmounted_slowly_by_its_pod_is_deleted_by_one_call(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    answers = node.releases
    node.releases = lambda asked: {"phase": "Ready", "conditions": [condition("Provisioned", "True", "Provisioned"),
                                                                    condition("Mounted", "True", "Staged")]}

    def let_go():
        node.releases = answers
        node.carry_out_orders()

    timer = threading.Timer(7, let_go)
    timer.start()
    controller.delete(volume_id, timeout=30)
    timer.join()
    assert order(cluster, name) is None


def test_an_export_that_waits_because_its_source_is_suspended_says_so(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    make_source(cluster, "paused", uri="s3://bucket/", suspend=True, identity={"method": "anonymous"})
    make_claim(cluster, "c", annotations={"cistern.io/source": "paused"})
    volume_id = controller.create(new_name(), node="node-a", claim=("default", "c")).volume_id
    node.releases = lambda asked: {"phase": "Exporting", "export": {"pendingObjects": 3, "pendingBytes": 2048},
                                   "conditions": [condition("Provisioned", "True", "Provisioned")]}
    code, text = controller.delete_fails(volume_id, timeout=4)
    assert code == Code.ABORTED and "BucketSource 'default/paused' is suspended" in text
    cluster.patch("/apis/cistern.io/v1alpha1/namespaces/default/bucketsources/paused", {"spec": {"suspend": False}})
    assert "3 files, 2.00 KiB, are still to be exported" in controller.delete_fails(volume_id, timeout=4)[1]


def asked_and_unanswered(cluster, nodes, controllers, **pv):
    """A release that its node has not taken up: (node, controller, name, id)."""
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    make_pv(cluster, name, volume_id)
    node.releases = lambda asked: None
    controller.delete_fails(volume_id, timeout=2)
    assert order(cluster, name)["spec"]["release"]["requested"] is True
    return node, controller, name, volume_id


@pytest.mark.parametrize("rescue", ["retain", "rebound", "unclaimed"])
def test_a_release_is_withdrawn_when_its_persistent_volume_is_to_stay(cluster, nodes, controllers, rescue):
    node, controller, name, volume_id = asked_and_unanswered(cluster, nodes, controllers)
    path = f"/api/v1/persistentvolumes/{name}"
    if rescue == "retain":
        cluster.patch(path, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    else:
        cluster.patch(f"{path}/status", {"status": {"phase": "Bound" if rescue == "rebound" else "Available"}})
    eventually(lambda: order(cluster, name)["spec"]["release"]["requested"] is False)
    node.releases = node.release
    node.carry_out_orders()
    assert list(node.volumes) == [name]
    code, text = controller.delete_fails(volume_id)  # who calls by an older copy is refused
    assert code == Code.FAILED_PRECONDITION and "CIS5112" in text
    assert order(cluster, name)["spec"]["release"]["requested"] is False
    eventually(lambda: [e for e in cluster.get("/api/v1/events")["items"] if e["reason"] == "ReleaseWithdrawn"])
    cluster.patch(path, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    cluster.patch(f"{path}/status", {"status": {"phase": "Released"}})
    controller.delete(volume_id)
    assert order(cluster, name) is None and node.volumes == {}


def test_a_release_that_its_node_has_committed_is_not_withdrawn(cluster, nodes, controllers):
    node, controller, name, volume_id = asked_and_unanswered(cluster, nodes, controllers)
    cluster.patch(f"{VOLUMES}/{name}/status", {"status": {"releaseCommitted": True}})
    cluster.patch(f"/api/v1/persistentvolumes/{name}", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    time.sleep(2)
    assert order(cluster, name)["spec"]["release"]["requested"] is True
    with pytest.raises(ApiError) as refused:  # nor by a person
        cluster.patch(f"{VOLUMES}/{name}", {"spec": {"release": {"requested": False}}})
    assert "cannot be withdrawn" in refused.value.status["message"]
    node.releases = node.release
    node.carry_out_orders()
    eventually(lambda: order(cluster, name) is None)


def test_volume_whose_disk_left_its_node_is_kept_and_reported(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    make_pv(cluster, name, volume_id, make_claim(cluster, "c", volume=name))
    node.releases = lambda asked: None if asked["spec"]["release"].get("discard") else {
        "phase": "Lost", "conditions": [condition("Provisioned", "True", "Provisioned"),
                                        condition("Exported", "False", "PoolAbsent", "held")]}
    code, text = controller.delete_fails(volume_id)
    assert code == Code.FAILED_PRECONDITION and "CIS3023" in text
    eventually(lambda: [e for e in cluster.get("/api/v1/events")["items"] if e["reason"] == "ReleaseHeld"
                        and e["involvedObject"]["kind"] == "PersistentVolume"])
    node.releases = node.release
    cluster.patch(f"/api/v1/persistentvolumes/{name}", {"metadata": {"annotations": {
        "cistern.io/discard-unexported": volume_id}}})
    controller.delete(volume_id)
    assert order(cluster, name) is None


def test_release_whose_node_was_not_notified_is_sent_again(cluster, nodes, controllers):
    """The controller died between the order and the node's notification, or the API server refused the notification."""
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    cluster.patch(f"{VOLUMES}/{name}", {"spec": {"release": {"requested": True, "discard": False}}})
    controller.delete(volume_id)
    assert order(cluster, name) is None and node.volumes == {}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_controller_that_ends_in_the_middle_of_a_release_is_followed_by_one_that_ends_it(cluster, nodes, controllers, how):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    answers, node.releases = node.releases, lambda asked: None
    controller.delete_fails(volume_id, timeout=2)
    controller.stop(how)
    node.releases = answers
    node.carry_out_orders()
    assert order(cluster, name)["status"]["phase"] == "Released"
    controller.start()
    eventually(lambda: order(cluster, name) is None, seconds=40)
    controller.delete(volume_id)


# ---- clean-up ---------------------------------------------------------------------------------------------------------

@pytest.mark.asan
def test_deleting_an_order_by_hand_destroys_nothing_and_says_so(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    cluster.delete(f"{VOLUMES}/{name}")
    held = eventually(lambda: status_of(cluster, name, "DeletionHeld"))
    assert held["status"] == "True" and "releases nothing" in held["message"]
    assert list(node.volumes) == [name]
    assert "release" not in order(cluster, name)["spec"]
    controller.delete(volume_id)
    assert order(cluster, name) is None



def test_only_volumes_without_claim_and_persistent_volume_are_released(cluster, nodes, controllers):
    node, controller = nodes(), controllers("controller-0", *QUICK)
    has_claim, gone, has_pv, has_pv_of_another_name = names = [new_name() for _ in range(4)]
    for name in names:
        make_claim(cluster, f"c-{name}")
        volume = controller.create(name, node="node-a", claim=("default", f"c-{name}"))
        if name == has_pv:
            make_pv(cluster, name, volume.volume_id)
        if name == has_pv_of_another_name:
            make_pv(cluster, "made-by-hand", volume.volume_id)
    by_nobody, _ = made(controller, cluster)  # the order names no claim, so the claim cannot be seen to be gone
    for name in (gone, has_pv, has_pv_of_another_name):
        remove(cluster, f"/api/v1/namespaces/default/persistentvolumeclaims/c-{name}")
    eventually(lambda: order(cluster, gone) is None)
    time.sleep(2.5)  # two more sweeps
    kept = [has_claim, has_pv, has_pv_of_another_name, by_nobody]
    assert sorted(node.volumes) == sorted(kept)
    assert all("release" not in order(cluster, n)["spec"] for n in kept)


def test_the_volume_of_a_prime_that_was_given_up_goes_although_its_target_is_there(cluster, nodes, controllers):
    node, controller = nodes(), controllers("controller-0", *QUICK)
    target = make_claim(cluster, "target")
    prime = f"prime-{target['metadata']['uid']}"
    make_claim(cluster, prime, NAMESPACE, {"cistern.io/populate-target": "default/target"})
    name = new_name()
    controller.create(name, node="node-a", claim=(NAMESPACE, prime))
    time.sleep(2.5)
    assert order(cluster, name)["spec"].get("release") is None
    remove(cluster, f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{prime}")
    eventually(lambda: order(cluster, name) is None)
    assert node.volumes == {}


@pytest.mark.asan
def test_a_tombstone_goes_when_its_time_is_over_and_one_whose_node_returns_is_released_there(cluster, nodes, controllers):
    node = nodes()
    controller = controllers("controller-0", "--node-gone-grace=1s", "--sweep-interval=1s", "--tombstone-age=6s")
    name, volume_id = made(controller, cluster)
    node.stop()
    node.delete_node()
    eventually(lambda: (status_of(cluster, name, "NodeGone") or {}).get("status") == "True")
    controller.delete(volume_id)
    assert order(cluster, name)["spec"]["release"]["requested"] is True
    eventually(lambda: order(cluster, name) is None)
    eventually(lambda: cluster.get(POOLS)["items"] == [])
    back = nodes("node-b", pool_uuid="bbbbbbbbbbbb")
    name = new_name()
    volume_id = controller.create(name, node="node-b").volume_id
    back.releases = lambda asked: None
    back.delete_node()
    eventually(lambda: (status_of(cluster, name, "NodeGone") or {}).get("status") == "True")
    controller.delete(volume_id)
    cluster.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-b"}})
    eventually(lambda: status_of(cluster, name, "NodeGone")["status"] == "False")
    back.releases = back.release
    back.carry_out_orders()
    eventually(lambda: order(cluster, name) is None)
    assert back.volumes == {}


def test_a_node_that_does_not_come_back_gives_its_volumes_up_and_stays_as_a_tombstone(cluster, nodes, controllers):
    node, controller = nodes(), controllers("controller-0", "--node-gone-grace=5s")
    name, volume_id = made(controller, cluster)
    claim = make_claim(cluster, "c", volume=name)
    make_pv(cluster, name, volume_id, claim)
    node.stop()
    node.delete_node()
    assert eventually(lambda: status_of(cluster, name, "NodeGone"))["status"] == "Unknown"
    assert cluster.kubectl("get", "civ", name).splitlines()[1].split()[-2] == "node-a"  # NODE, AGE: this node wrote none
    code, text = controller.delete_fails(volume_id, timeout=2)
    assert code == Code.ABORTED and "its node node-a is missing" in text
    eventually(lambda: status_of(cluster, name, "NodeGone")["status"] == "True")
    assert order(cluster, name)["status"]["phase"] == "Lost"
    controller.delete(volume_id)  # the PersistentVolume need not wait
    assert order(cluster, name)["spec"]["release"]["requested"] is True
    eventually(lambda: [e for e in cluster.get("/api/v1/events")["items"] if e["reason"] == "VolumeLost"])


def test_a_node_that_comes_back_in_time_has_its_volumes(cluster, nodes, controllers):
    node, controller = nodes(), controllers("controller-0", "--node-gone-grace=60s", "--sweep-interval=1s")
    name, _ = made(controller, cluster)
    node.delete_node()
    eventually(lambda: status_of(cluster, name, "NodeGone")["status"] == "Unknown" if status_of(cluster, name, "NodeGone")
               else False)
    cluster.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
    eventually(lambda: status_of(cluster, name, "NodeGone")["status"] == "False")
    assert "release" not in order(cluster, name)["spec"]


def make_lease(cluster, seconds_ahead):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + seconds_ahead))
    cluster.create(leases, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-a"},
                            "spec": {"renewTime": renewed}})
    return f"{leases}/node-a"


def test_a_node_whose_kubelet_renews_its_lease_is_not_gone(cluster, nodes, controllers):
    node, controller = nodes(), controllers("controller-0", *QUICK)
    name, _ = made(controller, cluster)
    lease = make_lease(cluster, 3600)
    node.delete_node()
    time.sleep(4)
    assert status_of(cluster, name, "NodeGone") is None
    remove(cluster, lease)


def test_expired_lease_keeps_a_node_for_the_grace_period_only(cluster, nodes, controllers):
    node, controller = nodes(), controllers("controller-0", "--node-gone-grace=2s")
    name, _ = made(controller, cluster)
    lease = make_lease(cluster, 0)
    node.delete_node()  # no other event reports it, and the next sweep is minutes away
    eventually(lambda: (status_of(cluster, name, "NodeGone") or {}).get("status") == "True")
    remove(cluster, lease)


@pytest.mark.parametrize("reason", ["ExportDue", "ExportStalled"])
def test_a_node_that_is_drained_says_which_data_it_waits_for(cluster, nodes, controllers, reason):
    node, controller = nodes(), controllers()
    name, volume_id = made(controller, cluster)
    node.apply(order(cluster, name), phase="Exporting", export={"pendingObjects": 3, "pendingBytes": 2048},
               conditions=[condition("Provisioned", "True", "Provisioned"),
                           condition("Exported", "False", reason, "due")])

    def told():
        return [e for e in cluster.get("/api/v1/events")["items"] if e["reason"] == "ExportBlocksDrain" and volume_id in e["message"]]
    time.sleep(1)
    assert told() == []
    cluster.patch("/api/v1/nodes/node-a", {"spec": {"unschedulable": True}})
    event = eventually(told)[0]
    assert event["involvedObject"]["kind"] == "Node" and event["involvedObject"]["name"] == "node-a"
    assert "2.00 KiB" in event["message"]

