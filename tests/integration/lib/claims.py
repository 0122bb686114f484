# SPDX-License-Identifier: Apache-2.0
"""Claims from end to end without a machine under them: the real control plane, external-provisioner and controller, and
nodes that are played: they answer orders as the driver's role node does, and end the pods of Jobs as a kubelet does."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request

from integration.lib.patience import pause
from paths import BUILD, TOP
from servers.api_proxy import ApiProxy
from servers.kubernetes import BIN, DIE_WITH_PARENT, ApiError, Kubernetes
from servers.process import free_port

CRDS = TOP / "charts/cistern/templates/crds"
API = "/apis/cistern.io/v1alpha1"
OURS = "cistern-system"
GIB = 1 << 30
DRIVER, TOPOLOGY = "csi.cistern.io", "topology.cistern.io/node"


PATIENCE = 120  # seconds: the machine may be busy


def wait_for(condition, seconds=PATIENCE, what=""):
    began = time.monotonic()
    while True:
        try:
            found = condition()
        except ApiError as e:
            if e.code != 404:
                raise
            found = None
        if found:
            return found
        assert time.monotonic() < began + seconds, f"not within {seconds} s: {what or condition}"
        pause(began, 0.05)


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def condition(kind, status, reason="Done"):
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": now()}


class Node:
    """One node of the driver. Tests set its fields, which decide about its orders."""

    def __init__(self, cluster, name, number):
        self.cluster, self.name = cluster, name
        self.uuid = f"{number:012x}"
        self.full = self.lost = self.silent = False
        self.hydrates = True  # what a Job's pod is to do: reach its end
        self.fault = None     # of the next tries, as status.errors has it
        self.exports = None   # of a volume that is released: None: nothing; False: without end; True: until its Job ends
        self.worked = set()   # names of pods whose Job ended

    def join(self):
        c = self.cluster
        c.create("/api/v1/nodes", {"metadata": {"name": self.name, "labels": {TOPOLOGY: self.name,
                                                                             "kubernetes.io/hostname": self.name}}})
        big = {"cpu": "64", "memory": "64Gi", "pods": "500"}
        c.patch(f"/api/v1/nodes/{self.name}/status", {"status": {
            "capacity": big, "allocatable": big,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Played", "message": "",
                            "lastHeartbeatTime": now(), "lastTransitionTime": now()}]}})
        c.create("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": self.name}, "spec": {
            "drivers": [{"name": DRIVER, "nodeID": self.name, "topologyKeys": [TOPOLOGY]}]}})
        pool = f"{self.name}.default"
        c.create(f"{API}/cisternpools", {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternPool",
                                         "metadata": {"name": pool},
                                         "spec": {"nodeName": self.name, "pool": "default"}})
        c.patch(f"{API}/cisternpools/{pool}/status", {"status": {
            "poolUUID": self.uuid, "path": "/pool", "backend": "loop", "fsType": "xfs", "capacityBytes": 100 * GIB,
            "allocatedBytes": 0, "availableBytes": 90 * GIB, "largestVolumeBytes": 90 * GIB,
            "health": {"status": "Healthy"}}})

    def leave(self):
        for path in (f"/api/v1/nodes/{self.name}", f"/apis/storage.k8s.io/v1/csinodes/{self.name}",
                     f"{API}/cisternpools/{self.name}.default"):
            try:
                self.cluster.delete(path)
            except ApiError:
                pass

    def tell(self, volume, **status):
        old = volume.get("status", {})
        kinds = {c["type"]: c for c in old.get("conditions", [])}
        kinds.update({c["type"]: c for c in status.pop("conditions", [])})
        try:
            self.cluster.patch(f"{API}/cisternvolumes/{volume['metadata']['name']}/status",
                               {"status": {**status, "conditions": list(kinds.values())}})
        except ApiError as e:
            assert e.code in (404, 409), e

    def serve(self, volume, pods):
        """One look at one of our volumes."""
        status = volume.get("status", {})
        said = {c["type"]: c["status"] for c in status.get("conditions", [])}
        if self.silent:
            return
        if volume["spec"].get("release", {}).get("requested"):
            if status.get("phase") != "Released" and self.has_exported(volume, pods):
                self.tell(volume, phase="Released")
        elif said.get("Provisioned") is None and self.full:
            self.tell(volume, conditions=[condition("Provisioned", "False", "NodeFull")])
        elif said.get("Provisioned") is None:
            self.tell(volume, phase="Provisioning", capacityBytes=volume["spec"]["capacityBytes"], poolUUID=self.uuid,
                      conditions=[condition("Provisioned", "True")])
        elif self.lost and status.get("phase") != "Lost":
            self.tell(volume, phase="Lost")
        elif said.get("Provisioned") == "True" and said.get("Hydrated") != "True":
            self.hydrate(volume, pods)

    def has_exported(self, volume, pods):
        if self.exports is None:
            return True
        if volume["status"].get("phase") != "Exporting":
            self.tell(volume, phase="Exporting")
        for pod in pods if self.exports else []:
            labels = pod["metadata"]["labels"]
            if labels.get("cistern.io/job") == "export" and labels["cistern.io/volume"] == volume["spec"]["volumeID"]:
                self.worked.add(pod["metadata"]["name"])
                self.end_pod(pod, "Succeeded")
                return True
        return False

    def hydrate(self, volume, pods):
        for pod in pods:
            mine = pod["metadata"]["labels"].get("cistern.io/volume") == volume["spec"]["volumeID"]
            if not mine or pod["metadata"].get("deletionTimestamp") or pod["metadata"]["name"] in self.worked:
                continue
            totals = {"objectsTotal": 2, "bytesTotal": 2048, "objectsDone": 1, "bytesDone": 1024, "startedAt": now()}
            if self.fault:
                self.worked.add(pod["metadata"]["name"])
                self.tell(volume, phase="Failed", hydration=totals, errors=[dict(self.fault, time=now())])
                self.end_pod(pod, "Failed")
            elif self.hydrates:
                self.worked.add(pod["metadata"]["name"])
                self.tell(volume, phase="Ready", errors=[],
                          hydration=dict(totals, objectsDone=2, bytesDone=2048, finishedAt=now()),
                          conditions=[condition("Hydrated", "True")])
                self.end_pod(pod, "Succeeded")
            elif volume.get("status", {}).get("phase") != "Hydrating":
                self.tell(volume, phase="Hydrating", hydration=totals)

    def end_pod(self, pod, phase):
        state = {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1, "startedAt": now(), "finishedAt": now()}}
        name = pod["spec"]["containers"][0]["name"]
        self.cluster.patch(f"/api/v1/namespaces/{OURS}/pods/{pod['metadata']['name']}/status", {"status": {
            "phase": phase, "containerStatuses": [{"name": name, "state": state, "ready": False, "restartCount": 0,
                                                   "image": "x", "imageID": "x"}]}})


class World:
    def __init__(self, replicas=1, nodes=2, flags=(), **cluster):
        self.flags = flags  # of the controller
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="claims-"))
        # Played nodes send no heartbeats.
        self.cluster = Kubernetes(controllers=True, scheduler=True, controller_flags=["--node-monitor-grace-period=2h"],
                                  **cluster)
        self.nodes = [Node(self.cluster, f"node-{i}", i + 1) for i in range(nodes)]
        self.replicas, self.children, self.starts = replicas, {}, 0
        self.metrics_port = free_port()
        self.stopping = threading.Event()
        self.player = threading.Thread(target=self.play, daemon=True)
        self.trouble = []

    # ---- processes

    def run(self, name, *command, env=None):
        log = open(self.folder / f"{name}.log", "ab")
        self.children[name] = subprocess.Popen([*DIE_WITH_PARENT, *map(str, command)], stdout=log, stderr=log,
                                               stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
        log.close()

    def way_to_the_server(self):
        return self.cluster.kubeconfig

    def start_controller(self, number=0):
        self.starts += 1
        socket = self.folder / f"csi{number}.sock"
        self.run(f"controller{number}", BUILD / "bin/cisternd", "--role=controller", f"--endpoint=unix://{socket}",
                 f"--kubeconfig={self.way_to_the_server()}", f"--namespace={OURS}", "--image=cistern:test",
                 "--job-priority-class=", "--log-level=debug", *self.flags,
                 *([f"--metrics=127.0.0.1:{self.metrics_port}"] if number == 0 else []), env={"POD_NAME": f"controller-{number}-{self.starts}"})

    def start_provisioner(self, number=0):
        self.run(f"provisioner{number}", BIN / "csi-provisioner", f"--csi-address={self.folder}/csi{number}.sock",
                 f"--kubeconfig={self.cluster.kubeconfig}", "--extra-create-metadata", "--strict-topology",
                 "--immediate-topology=false", "--timeout=30s", "--retry-interval-start=500ms",
                 "--retry-interval-max=2s", "--kube-api-qps=50", "--kube-api-burst=100")

    def keep_provisioner(self):
        """It ends a while after its driver did, and its container is started again."""
        child = self.children.get("provisioner0")
        if child and child.poll() is not None:
            self.start_provisioner()

    def kill(self, name, how=signal.SIGKILL):
        child = self.children.pop(name)
        child.send_signal(how)
        child.wait(30)
        return child.returncode

    def forget_leader(self):
        """So that the next one need not see the lease of one that was killed run out."""
        try:
            self.cluster.delete(f"/apis/coordination.k8s.io/v1/namespaces/{OURS}/leases/cistern-controller")
        except ApiError as e:
            assert e.code == 404

    def start(self):
        c = self.cluster.start()
        c.kubectl("apply", "-f", CRDS)
        c.kubectl("wait", "--for=condition=Established", "crd", "--all", f"--timeout={PATIENCE}s", timeout=2 * PATIENCE)
        c.create("/api/v1/namespaces", {"metadata": {"name": OURS}})
        c.create(f"/api/v1/namespaces/{OURS}/serviceaccounts", {"metadata": {"name": "cistern-job"}})
        c.create("/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False}})
        self.make_class("cistern")
        for node in self.nodes:
            node.join()
        self.player.start()
        for number in range(self.replicas):
            self.start_controller(number)
        wait_for(lambda: (self.folder / "csi0.sock").exists())
        self.start_provisioner()
        return self

    def stop(self):
        self.stop_player()
        for name in list(self.children):
            self.kill(name)
        self.cluster.stop()

    def log(self, name="controller0"):
        return (self.folder / f"{name}.log").read_text()

    def series(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return [line for line in lines if line.startswith((name + " ", name + "{"))]

    def metric(self, name):
        return sum(float(line.split()[-1]) for line in self.series(name))

    # ---- nodes

    def every_node(self, **fields):
        """Sets fields of all nodes: every_node(hydrates=False)."""
        for node in self.nodes:
            vars(node).update(fields)

    def stop_player(self):
        self.stopping.set()
        if self.player.is_alive():
            self.player.join()

    def play(self):
        """Looks often while something changes, and seldom while nothing does: a look costs the API server two lists."""
        c, idle, seen = self.cluster, 0.05, None
        while not self.stopping.wait(idle):
            self.keep_provisioner()
            try:
                pods = c.get(f"/api/v1/namespaces/{OURS}/pods")["items"]
                volumes = c.get(f"{API}/cisternvolumes")["items"]
                now_seen = [o["metadata"]["resourceVersion"] for o in pods + volumes]
                idle, seen = 0.05 if now_seen != seen else min(1.3 * idle, 0.3), now_seen
                for volume in volumes:
                    for node in self.nodes:
                        if node.name == volume["spec"]["nodeName"]:
                            node.serve(volume, pods)
                for pod in pods:
                    if pod["metadata"].get("deletionTimestamp"):  # the kubelet's last word
                        self.end_forced(pod)
            except (OSError, ApiError) as e:
                self.trouble.append(e)

    def end_forced(self, pod):
        """A kubelet says how a pod ended before it lets it go; a Job counts no pod that says nothing."""
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self.nodes[0].end_pod(pod, "Failed")
        self.cluster.request("DELETE", f"/api/v1/namespaces/{OURS}/pods/{pod['metadata']['name']}",
                             {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    # ---- objects

    def make_class(self, name, mode="WaitForFirstConsumer", policy="Delete", provisioner=DRIVER, allowed=None, **parameters):
        """`allowed`: values of labels that its nodes have."""
        terms = [{"matchLabelExpressions": [{"key": k, "values": v} for k, v in allowed.items()]}] if allowed else []
        return self.cluster.create("/apis/storage.k8s.io/v1/storageclasses", {
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": policy,
            "allowedTopologies": terms, "parameters": {"pool": "default", **parameters}})

    def make_namespace(self, name):
        self.cluster.create("/api/v1/namespaces", {"metadata": {"name": name}})
        wait_for(lambda: self.cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))

    def make_source(self, ns, name="data", **spec):
        return self.cluster.create(f"{API}/namespaces/{ns}/bucketsources", {
            "apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": name},
            "spec": {"uri": "s3://bucket/data/", "identity": {"method": "anonymous"}, **spec}})

    def make_claim(self, ns, name="claim", source="data", cls="cistern", annotations=None, labels=None, size="1Gi"):
        spec = {"storageClassName": cls, "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": size}}}
        if source:
            spec["dataSourceRef"] = {"apiGroup": "cistern.io", "kind": "BucketSource", "name": source}
        return self.cluster.create(f"/api/v1/namespaces/{ns}/persistentvolumeclaims", {
            "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}}, "spec": spec})

    def make_pod(self, ns, claim="claim", name="pod", **spec):
        return self.cluster.create(f"/api/v1/namespaces/{ns}/pods", {"metadata": {"name": name}, "spec": {
            **spec,
            "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})

    def end_pod(self, ns, name="pod"):
        self.cluster.request("DELETE", f"/api/v1/namespaces/{ns}/pods/{name}",
                             {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    def claim(self, ns, name="claim"):
        return self.cluster.get(f"/api/v1/namespaces/{ns}/persistentvolumeclaims/{name}")

    def delete_claim(self, ns, name="claim"):
        self.cluster.delete(f"/api/v1/namespaces/{ns}/persistentvolumeclaims/{name}")

    def empty(self, ns):
        """Deletes a namespace's pods, then its claims, and expects that no object of Cistern stays."""
        for pod in self.items(f"/api/v1/namespaces/{ns}/pods"):
            self.end_pod(ns, pod["metadata"]["name"])
        claims = f"/api/v1/namespaces/{ns}/persistentvolumeclaims"
        for claim in self.items(claims):
            self.delete_claim(ns, claim["metadata"]["name"])
        wait_for(lambda: not self.items(claims), PATIENCE, f"no claim is left in {ns}")
        self.wait_for_nothing_left()

    def items(self, path):
        return self.cluster.get(path)["items"]

    def primes(self):
        return self.items(f"/api/v1/namespaces/{OURS}/persistentvolumeclaims")

    def jobs(self):
        return self.items(f"/apis/batch/v1/namespaces/{OURS}/jobs")

    def volumes(self):
        return self.items(f"{API}/cisternvolumes")

    def pvs(self):
        return self.items("/api/v1/persistentvolumes")

    def events(self, ns, reason):
        return [e for e in self.items(f"/api/v1/namespaces/{ns}/events") if e["reason"] == reason]

    def is_gone(self, ns, name="claim"):
        try:
            self.claim(ns, name)
            return False
        except ApiError as e:
            return e.code == 404

    def wait_for_bound(self, ns, name="claim", seconds=PATIENCE):
        return wait_for(lambda: (c := self.claim(ns, name))["status"]["phase"] == "Bound" and c, seconds, f"{ns}/{name} bound")

    def wait_for_nothing_left(self, seconds=PATIENCE):
        def left():
            return {"primes": [o["metadata"]["name"] for o in self.primes()],
                    "jobs": [o["metadata"]["name"] for o in self.jobs()],
                    "volumes": [o["metadata"]["name"] for o in self.volumes()],
                    "pvs": [o["metadata"]["name"] for o in self.pvs()],
                    "pods": [o["metadata"]["name"] for o in self.items(f"/api/v1/namespaces/{OURS}/pods")]}
        wait_for(lambda: not any(left().values()) or None, seconds, f"nothing left but {left()}")


class ProxiedWorld(World):
    """Only the controller uses the proxy: other programs do not belong to Cistern."""

    proxy = None

    def way_to_the_server(self):
        self.proxy = self.proxy or ApiProxy(self.cluster)
        return self.proxy.kubeconfig


@contextlib.contextmanager
def running_world(kind=World, **options):
    """A World that is started, and stopped also if its start fails."""
    world = kind(**options)
    try:
        yield world.start()
    finally:
        world.stop()
