# SPDX-License-Identifier: Apache-2.0
"""Requests and changes that a claim may make while a pod uses it, and accounts that get no credentials."""

import json
import random
import time

import pytest

from e2e.lib import broker
from e2e.lib.machine import eventually
from e2e.lib.ours import IMAGE, NAMESPACE, bound_token, pods

MIB = 1 << 20


def claim_path(team, name):
    return f"/api/v1/namespaces/{team.name}/persistentvolumeclaims/{name}"


def told(team, name, reason):
    """The text of an event about this object."""
    return next(e["message"] for e in team.cluster.api.list(f"/api/v1/namespaces/{team.name}/events")
                if e["involvedObject"]["name"] == name and e["reason"] == reason)


def test_a_second_pod_waits_for_a_read_write_once_pod_claim_until_the_first_is_gone(cluster, team):
    team.apply(team.claim("one", size="64Mi"), team.pod("first", "one", "echo from the first >/data/file; sleep 3600"))
    team.await_pod("first")
    team.apply(team.pod("second", "one", "cat /data/file; sleep 3600"))
    said = eventually(lambda: told(team, "second", "FailedScheduling"), "the scheduler holds the second back", 30)
    assert "ReadWriteOncePod" in said
    team.delete("pod/first")
    team.await_pod("second")
    team.await_logs("second", "from the first\n")


def total_mib(team, pod):
    """As df has it: the file system's own part is not in it."""
    blocks, size = map(int, team.exec(pod, "stat", "-f", "-c", "%b %S", "/data").split())
    return blocks * size // MIB


def test_a_claim_grows_under_its_pod_and_only_as_far_as_the_pool_has_room(cluster, team):
    team.apply(team.claim("grows", size="64Mi"), team.pod("user", "grows", "exec 3>/data/open; sleep 3600"))
    team.await_pod("user")
    assert 48 <= total_mib(team, "user") <= 64
    ask_for(team, "grows", "100Gi")
    said = eventually(lambda: told(team, "grows", "VolumeResizeFailed"), "what the pool does not have is refused", 60)
    assert "CIS2029" in said and "delete volumes of this node, or request less" in said
    ask_for(team, "grows", "128Mi")
    eventually(lambda: total_mib(team, "user") > 100, "the pod sees the new size", 60)
    team.exec("user", "dd", "if=/dev/zero", "of=/data/more", "bs=1M", "count=90")
    status = eventually(lambda: settled(cluster, team, "grows"), "nothing is left to do for the claim", 60)
    assert status["capacity"]["storage"] == "128Mi"
    assert cluster.pod("user", team.name)["status"]["containerStatuses"][0]["restartCount"] == 0


def ask_for(team, name, size):
    team.cluster.api.patch(claim_path(team, name), {"spec": {"resources": {"requests": {"storage": size}}}})


def settled(cluster, team, name):
    status = cluster.api.get(claim_path(team, name))["status"]
    return status if not status.get("conditions") and not status.get("allocatedResourceStatuses") else None


@pytest.fixture
def classes(cluster):
    made = []

    def make(name, **parameters):
        cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
                       "driverName": "csi.cistern.io", "parameters": parameters})
        made.append(name)
        return name

    yield make
    cluster.kubectl("delete", "volumeattributesclass", *made, "--wait=false")  # a claim that has one protects it


def test_an_attributes_class_changes_what_may_change_and_nothing_else(cluster, team, classes):
    team.apply(team.claim("set", size="64Mi"), team.pod("user", "set", "sleep 3600"))
    team.await_pod("user")
    take = {"spec": {"volumeAttributesClassName": classes("gentle", bandwidth="1Mi", concurrency="4",
                                                          onDataLoss="rehydrate")}}
    cluster.api.patch(claim_path(team, "set"), take)
    eventually(lambda: cluster.api.get(claim_path(team, "set"))["status"].get("currentVolumeAttributesClassName") == "gentle",
               "the claim has its class", 60)
    volume = team.volume("set")
    kept = f"/mnt/disks/cistern/volumes/{volume['spec']['volumeID']}/volume.json"

    def on_the_disk():
        return json.loads(cluster.nodes[volume["spec"]["nodeName"]].run("cat", kept))

    eventually(lambda: "rehydrate" in json.dumps(on_the_disk()), "the node wrote it down", 30)
    before = on_the_disk()
    cluster.api.patch(claim_path(team, "set"), {"spec": {"volumeAttributesClassName": classes("other", pool="other",
                                                                                             concurrency="8")}})
    said = eventually(lambda: told(team, "set", "VolumeModifyFailed"), "a parameter that cannot change is refused", 60)
    assert "'pool'" in said and "change only concurrency, bandwidth" in said, said
    assert on_the_disk() == before, "nothing of such a class is taken"
    assert cluster.api.get(claim_path(team, "set"))["status"]["currentVolumeAttributesClassName"] == "gentle"
    assert cluster.pod("user", team.name)["status"]["phase"] == "Running"


@pytest.fixture
def trickle(cluster):
    """A class whose volumes are filled so slowly that they can be seen before they are whole."""
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "trickle"},
                   "provisioner": "csi.cistern.io", "volumeBindingMode": "WaitForFirstConsumer",
                   "parameters": {"bandwidth": "512Ki"}})
    yield "trickle"
    cluster.kubectl("delete", "storageclass", "trickle")


def slow_claim(team, name, source=None, **annotations):
    claim = team.claim(name, source, size="64Mi", **annotations)
    claim["spec"]["storageClassName"] = "trickle"
    return claim


@pytest.mark.parametrize("source,annotations", [(None, {"cistern.io/source": "set"}), ("set", {"cistern.io/hydration": "gate"})])
def test_with_gate_the_claim_is_bound_at_once_and_the_pod_starts_with_the_data(cluster, store, team, trickle, source,
                                                                               annotations):
    bucket = store.bucket({"data": random.Random(1).randbytes(3 * MIB)})
    team.apply(team.source("set", f"s3://{bucket}/"), slow_claim(team, "set", source, **annotations),
               team.pod("user", "set", "wc -c </data/data; sleep 3600"))
    eventually(lambda: cluster.api.get(claim_path(team, "set"))["status"]["phase"] == "Bound", "the claim is bound", 30)
    assert team.volume("set")["status"].get("phase") != "Ready"
    assert cluster.pod("user", team.name)["status"]["phase"] == "Pending"
    team.await_pod("user")
    team.await_logs("user", f"{3 * MIB}\n")


def test_with_gate_a_pod_that_is_deleted_alone_goes_at_once_and_the_next_finds_the_data(cluster, store, team, trickle):
    bucket = store.bucket({"data": random.Random(1).randbytes(14 * MIB)})  # for 28 s
    user = team.pod("user", "set", "wc -c </data/data; sleep 3600")
    team.apply(team.source("set", f"s3://{bucket}/"), slow_claim(team, "set", "set", **{"cistern.io/hydration": "gate"}), user)
    eventually(lambda: team.volume("set")["status"]["phase"] == "Hydrating" and any(
        c["reason"] == "Staged" for c in team.volume("set")["status"]["conditions"]), "the kubelet's call waits", 60)
    time.sleep(2)  # time to mount its token
    cluster.kubectl("delete", "pod/user", "-n", team.name, "--timeout=20s", timeout=30)
    driver = pods(cluster, "node")[team.volume("set")["spec"]["nodeName"]]["metadata"]["name"]

    def call_ended():
        said = cluster.kubectl("logs", "-n", NAMESPACE, driver)
        return any("CIS3018" in line and team.volume("set")["spec"]["volumeID"] in line for line in said.splitlines())

    eventually(call_ended, "the kubelet's call is answered", 20)
    assert team.volume("set")["status"]["phase"] == "Hydrating", "it did not have to wait for that"
    team.apply(user)
    team.await_pod("user", seconds=180)
    team.await_logs("user", f"{14 * MIB}\n")


def job_pod(cluster, volume_id):
    return next(p for p in cluster.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=cistern.io/volume={volume_id}")
                if p["status"]["phase"] == "Running")


def test_neither_a_pod_of_a_user_nor_a_job_of_another_volume_gets_credentials(cluster, store, team, trickle):
    bucket = store.bucket({"data": random.Random(1).randbytes(6 * MIB)})
    team.apply(team.source("set", f"s3://{bucket}/"))
    for name in ("mine", "other"):
        team.apply(slow_claim(team, name, **{"cistern.io/source": "set"}), team.pod(name, name, "true"))
    mine, other = (eventually(lambda n=name: team.volume(n), f"{name} is ordered", 30) for name in ("mine", "other"))
    pod = eventually(lambda: job_pod(cluster, mine["spec"]["volumeID"]), "the Job of the one runs", 30)
    token = bound_token(cluster, "cistern-job", pod, "cistern-broker")
    assert broker.ask(cluster, token, mine["metadata"]["name"])[0] == 200
    status, answer = broker.ask(cluster, token, other["metadata"]["name"])
    assert status == 403 and answer["error"]["id"] == "CIS1903", answer

    team.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca"}, "data": {"ca.crt": broker.bundle(cluster)}},
               thief(cluster, store, bucket, mine["metadata"]["name"]))
    team.await_pod("thief", "Failed")
    assert "CIS1903" in team.logs("thief") and f"system:serviceaccount:{team.name}:default" in team.logs("thief")


def thief(cluster, store, bucket, volume):
    """A pod that has all that a Job of the volume has, but its account."""
    told = {"CISTERN_BROKER_URL": f"https://cistern-broker.{NAMESPACE}.svc", "CISTERN_BROKER_VOLUME": volume,
            "CISTERN_BROKER_FOR": "hydrate", "CISTERN_BROKER_SERVICE_HOST": broker.address(cluster),
            "CISTERN_BROKER_SERVICE_PORT": "443"}
    token = {"serviceAccountToken": {"audience": "cistern-broker", "path": "token"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"},
            "spec": {"restartPolicy": "Never", "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["cistern", "ls", "--endpoint", store.url, f"s3://{bucket}/"],
                "env": [{"name": name, "value": value} for name, value in told.items()],
                "volumeMounts": [{"name": n, "mountPath": f"/var/run/secrets/cistern.io/{n}"} for n in ("broker", "ca")]}],
                "volumes": [{"name": "ca", "configMap": {"name": "ca"}}, {"name": "broker", "projected": {"sources": [token]}}]}}
