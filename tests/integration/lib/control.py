# SPDX-License-Identifier: Apache-2.0
"""The other side of our own protocol: a node that answers orders by patching objects, as its fields say; and
cisternd --role=controller as a child, on a real API server."""

import os
import pathlib
import subprocess
import threading
import time
import uuid

import grpc

from integration.csi.driver import Child, Client, capability, csi
from integration.lib.patience import pause
from paths import BUILD
from servers.kubernetes import ApiError

VOLUMES = "/apis/cistern.io/v1alpha1/cisternvolumes"
POOLS = "/apis/cistern.io/v1alpha1/cisternpools"
NAMESPACE = "cistern-system"
MIB, GIB = 1 << 20, 1 << 30


def eventually(look, seconds=60, what=None):
    """The first answer of `look` that is true."""
    began = time.monotonic()
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < began + seconds, f"not within {seconds} s: {what or look}"
        pause(began, 0.05)


def condition(kind, status, reason, message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message or reason,
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


class FakeNode:
    """`makes` and `releases` say how orders are answered: a function of the order, None for no answer."""

    def __init__(self, cluster, name, pool="default", total=100 * GIB, pool_uuid="0123456789ab"):
        self.cluster, self.name, self.pool, self.total, self.uuid = cluster, name, f"{name}.{pool}", total, pool_uuid
        self.pool_name, self.volumes, self.seen = pool, {}, []
        self.makes = self.make
        self.releases = self.release
        self.stopped = threading.Event()
        cluster.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        cluster.create(POOLS, {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternPool",
                               "metadata": {"name": self.pool}, "spec": {"nodeName": name, "pool": pool}})
        self.tell_pool()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    # ---- what it says

    def tell_pool(self, **health):
        free = self.total - sum(self.volumes.values())
        self.cluster.patch(f"{POOLS}/{self.pool}/status", {"status": {
            "poolUUID": self.uuid, "path": "/pool", "backend": "quota", "capacityBytes": self.total,
            "availableBytes": free, "largestVolumeBytes": free, "health": health or {"status": "Healthy"}}})

    def apply(self, order, **status):
        body = {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume",
                "metadata": {"name": order["metadata"]["name"], "uid": order["metadata"]["uid"]}, "status": status}
        self.cluster.request("PATCH", f"{VOLUMES}/{order['metadata']['name']}/status?fieldManager=cistern-node&force=true",
                             body, "application/apply-patch+yaml")

    def make(self, order):
        size = order["spec"]["capacityBytes"]
        if size > self.total - sum(self.volumes.values()):
            return self.refuse("NodeFull", "not enough")(order)
        self.volumes[order["metadata"]["name"]] = size
        return {"phase": "Ready", "capacityBytes": size,
                "conditions": [condition("Provisioned", "True", "Provisioned")]}

    @staticmethod
    def refuse(reason, message):
        return lambda order: {"phase": "Failed", "conditions": [condition("Provisioned", "False", reason, message)]}

    def release(self, order):
        self.volumes.pop(order["metadata"]["name"], None)
        return {"phase": "Released", "conditions": [condition("Provisioned", "True", "Provisioned")]}

    # ---- how it looks

    def orders(self):
        query = f"?labelSelector=cistern.io%2Fnode%3D{self.name}"
        return self.cluster.get(VOLUMES + query)["items"]

    def carry_out_orders(self):
        for order in self.orders():
            status = order.get("status", {})
            said = {c["type"]: c["status"] for c in status.get("conditions", [])}
            asked = order["spec"].get("release", {}).get("requested")
            answer = None
            if asked and status.get("phase") != "Released":
                answer = self.releases(order)
            elif not asked and said.get("Provisioned") is None:
                answer = self.makes(order)
            if answer:
                self.apply(order, **answer)

    def run(self):
        generation = None
        while not self.stopped.is_set():
            try:
                now = self.cluster.get(f"{POOLS}/{self.pool}")["spec"].get("volumesGeneration")
                if now != generation:
                    self.seen.append(now)
                    self.carry_out_orders()
                    generation = now
            except (OSError, ApiError):
                pass
            self.stopped.wait(0.05)

    def stop(self):
        self.stopped.set()
        self.thread.join(20)

    def delete_node(self):
        self.cluster.delete(f"/api/v1/nodes/{self.name}")


class Controller(Child):
    def __init__(self, cluster, folder, name="controller-0", flags=()):
        self.cluster, self.name, self.flags = cluster, name, list(flags)
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir(exist_ok=True)
        self.socket, self.log = self.folder / "csi.sock", self.folder / "log"

    def start(self):
        self.launch()
        eventually(self.is_ready, what=lambda: self.log_text()[-3000:])
        return self

    def launch(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BUILD / "bin" / "cisternd", "--role=controller", f"--endpoint=unix://{self.socket}",
                 f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}", f"--state={self.folder}",
                 "--image=cistern:test", "--log-level=debug", *self.flags],
                stderr=log, stdin=subprocess.DEVNULL, env=os.environ | {"POD_NAME": self.name})

    def is_ready(self):
        assert self.process.poll() is None, f"cisternd ended with {self.process.returncode}: {self.log_text()[-3000:]}"
        if self.client:
            self.client.close()
        self.client = Client(self.socket)
        try:
            return self.client.call("Probe", timeout=1).ready.value
        except grpc.RpcError:
            return False

    # ---- calls

    def create(self, name, size=GIB, node=None, claim=None, parameters=None, timeout=20):
        return self.client.call("CreateVolume", timeout=timeout, **self.request(name, size, node, claim, parameters)).volume

    def create_fails(self, name, size=GIB, node=None, claim=None, parameters=None, timeout=20):
        return self.client.fails("CreateVolume", timeout=timeout, **self.request(name, size, node, claim, parameters))

    @staticmethod
    def request(name, size, node, claim, parameters):
        words = dict(parameters or {})
        if claim:
            words |= {"csi.storage.k8s.io/pvc/namespace": claim[0], "csi.storage.k8s.io/pvc/name": claim[1],
                      "csi.storage.k8s.io/pv/name": name}
        fields = {"name": name, "volume_capabilities": [capability()], "parameters": words,
                  "capacity_range": csi.CapacityRange(required_bytes=size)}
        if node:
            at = csi.Topology(segments={"topology.cistern.io/node": node})
            fields["accessibility_requirements"] = csi.TopologyRequirement(requisite=[at], preferred=[at])
        return fields

    def delete(self, volume_id, timeout=20):
        return self.client.call("DeleteVolume", timeout=timeout, volume_id=volume_id)

    def delete_fails(self, volume_id, timeout=20):
        return self.client.fails("DeleteVolume", timeout=timeout, volume_id=volume_id)


def order(cluster, name):
    """The CisternVolume, or None."""
    try:
        return cluster.get(f"{VOLUMES}/{name}")
    except ApiError as e:
        assert e.code == 404
        return None


def make_claim(cluster, name, namespace="default", annotations=None, source=None, volume=None):
    spec = {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "cistern"}
    if source:
        spec["dataSourceRef"] = {"apiGroup": "cistern.io", "kind": "BucketSource", "name": source}
    if volume:
        spec["volumeName"] = volume
    return cluster.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec})


def make_pv(cluster, name, volume_id, claim=None, annotations=None):
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"], "storageClassName": "cistern",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "csi.cistern.io", "volumeHandle": volume_id}}
    if claim:
        spec["claimRef"] = {"namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"],
                            "uid": claim["metadata"]["uid"]}
    return cluster.create("/api/v1/persistentvolumes", {
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec})


def make_source(cluster, name, namespace="default", **spec):
    return cluster.create(f"/apis/cistern.io/v1alpha1/namespaces/{namespace}/bucketsources", {
        "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": name},
        "spec": spec or {"uri": "s3://bucket/prefix/"}})


def remove(cluster, path):
    """Deletes an object with its finalizers."""
    try:
        cluster.patch(path, {"metadata": {"finalizers": None}})
        cluster.delete(path)
    except ApiError as e:
        assert e.code == 404


def new_name():
    return f"pvc-{uuid.uuid4()}"
