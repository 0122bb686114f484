# SPDX-License-Identifier: Apache-2.0
"""Volumes ordered as the controller orders them, with its account, and given to pods by PersistentVolumes made by hand:
a node can be tested without the controller."""

import itertools

from .control import Api
from .machine import eventually
from .ours import API, DRIVER, NAMESPACE

BUSYBOX = {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}
numbers = itertools.count(1)


def controller(cluster):
    reply = cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/cistern-controller/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}})
    return Api(cluster.pki, reply["status"]["token"])


class Volume:
    """An empty volume on one node, and a claim that is bound to it."""

    def __init__(self, cluster, node, size=256 << 20):
        self.cluster, self.node, self.size = cluster, node, size
        self.name = f"order-{next(numbers)}"
        self.path = f"{API}/cisternvolumes/{self.name}"
        self.api = controller(cluster)
        self.pool = f"{API}/cisternpools/{node}.default"
        uuid = eventually(lambda: self.api.get(self.pool)["status"]["poolUUID"], f"{node} tells of its pool")
        self.id = f"v1-{uuid}-{next(numbers):012x}"
        self.api.create(f"{API}/cisternvolumes", {
            "apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume",
            "metadata": {"name": self.name, "labels": {"cistern.io/node": node}, "finalizers": ["cistern.io/release"]},
            "spec": {"volumeID": self.id, "nodeName": node, "pool": "default", "capacityBytes": size}})
        self.call()

    def call(self):
        """Makes the node list its orders."""
        now = self.api.get(self.pool)["spec"].get("volumesGeneration", 0)
        self.api.patch(self.pool, {"spec": {"volumesGeneration": now + 1}})

    def status(self):
        return self.api.get(self.path).get("status", {})

    def condition(self, name):
        return next((c for c in self.status().get("conditions", []) if c["type"] == name), {"status": None})

    def await_condition(self, name, value="True", seconds=30):
        eventually(lambda: self.condition(name)["status"] == value, f"{self.name}: {name} is {value}", seconds)
        return self

    def bind(self):
        where = {"matchExpressions": [{"key": "topology.cistern.io/node", "operator": "In", "values": [self.node]}]}
        common = {"storageClassName": "", "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.name},
             "spec": {**common, "capacity": {"storage": str(self.size)}, "persistentVolumeReclaimPolicy": "Retain",
                      "csi": {"driver": DRIVER, "volumeHandle": self.id},
                      "claimRef": {"namespace": "default", "name": self.name},
                      "nodeAffinity": {"required": {"nodeSelectorTerms": [where]}}}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": self.name},
             "spec": {**common, "volumeName": self.name, "resources": {"requests": {"storage": str(self.size)}}}})
        claim = f"/api/v1/namespaces/default/persistentvolumeclaims/{self.name}"
        eventually(lambda: self.api.get(claim)["status"]["phase"] == "Bound", f"claim {self.name} is bound")
        return self

    def pod(self, script, name=None, mount=None, **spec):
        """A pod that has the volume on /data and runs this script; the manifest."""
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name or self.name},
                "spec": {"terminationGracePeriodSeconds": 1, "restartPolicy": "Never",
                         "containers": [{"name": "main", **BUSYBOX, "command": ["sh", "-c", script],
                                         "volumeMounts": [{"name": "data", "mountPath": "/data", **(mount or {})}]}],
                         "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": self.name}}], **spec}}

    def run(self, script, **more):
        manifest = self.pod(script, **more)
        self.cluster.apply(manifest)
        return manifest["metadata"]["name"]

    def folder(self):
        return f"/mnt/disks/cistern/volumes/{self.id}"

    def release(self):
        self.api.patch(self.path, {"spec": {"release": {"requested": True, "discard": True}}})
        self.call()

    def remove(self):
        """Pods, claim, PV, and the volume itself; its directory must be gone from the disk."""
        self.cluster.kubectl("delete", "pod", self.name, "--ignore-not-found", "--timeout=60s")
        self.cluster.kubectl("delete", "pvc,pv", self.name, "--ignore-not-found", "--timeout=60s")
        self.release()  # what the node then reports, the controller takes away
        eventually(lambda: not self.api.exists(self.path), f"{self.name} is released and gone", 60)
        assert self.cluster.nodes[self.node].run("test", "-e", self.folder(), check=False).returncode == 1


class Worker:
    """A pod that reads, writes and renames without pause, and says each thing that failed."""

    SCRIPT = """echo unchanged >/data/fixed
        exec 3>>/data/appended
        i=0
        while :; do
            i=$((i+1))
            echo $i >&3 || echo FAILED append $i
            [ "$(cat /data/fixed)" = unchanged ] || echo FAILED read $i
            echo $i >/data/new && mv /data/new /data/count || echo FAILED rename $i
        done"""

    def __init__(self, volume, **spec):
        self.volume, self.cluster = volume, volume.cluster
        self.name = volume.run(self.SCRIPT, **spec)
        self.cluster.await_pod(self.name)
        self.began = self.cluster.pod(self.name)["status"]["containerStatuses"][0]["containerID"]

    def count(self):
        return int(self.cluster.exec(self.name, "cat", "/data/count") or 0)

    def go_on(self, seconds=30):
        """Waits until the work has advanced; it is the same container, and nothing has failed."""
        before = eventually(self.count, "the worker counts", seconds)
        eventually(lambda: self.count() > before + 5, "the worker goes on", seconds)
        self.check()

    def check(self):
        said = self.cluster.kubectl("logs", self.name)
        assert said == "", said
        status = self.cluster.pod(self.name)["status"]["containerStatuses"][0]
        assert status["containerID"] == self.began and status["restartCount"] == 0


def pids_of(node, program, argument):
    """The processes of this program with an argument that begins so."""
    found = node.run("pidof", program, check=False).stdout.split()
    return [pid for pid in found if f"\0{argument}" in node.run("cat", f"/proc/{pid}/cmdline", check=False).stdout]


def kill(node, program):
    """Kills every process of this program on the node; how many it killed. One may have ended before."""
    pids = node.run("pidof", program, check=False).stdout.split()
    return sum(node.run("kill", "-KILL", pid, check=False).returncode == 0 for pid in pids)


def replace_pod(cluster, component, node, seconds=60):
    """Deletes the pod of one of our DaemonSets on the node and waits for the next."""
    from .ours import is_ready, pods

    old = pods(cluster, component)[node]
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, old["metadata"]["name"], "--wait=false")

    def new():
        pod = pods(cluster, component).get(node)
        return pod and pod["metadata"]["uid"] != old["metadata"]["uid"] and is_ready(pod)

    eventually(new, f"a new {component} pod is on {node}", seconds)
