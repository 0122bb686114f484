# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the stories: a bucket for pods, a namespace with its keys, and the cleanup."""

import itertools
import pathlib

from paths import files_below
from servers import versitygw

from .cluster import HOST
from .machine import eventually, loops_on
from .ours import API, NAMESPACE, logs

numbers = itertools.count(1)
BUSYBOX = {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}


class Store(versitygw.Versitygw):
    """S3 at an address of the control plane's machine; buckets are directories."""

    host = HOST

    def bucket(self, files=None):
        name = f"bucket-{next(numbers)}"
        self.make_bucket(name)
        self.fill(name, files or {})
        return name

    def fill(self, bucket, files):
        for key, data in files.items():
            path = self.data / bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def keys(self, bucket):
        top = self.data / bucket
        return {str(p.relative_to(top)) for p in files_below(top) if not p.relative_to(top).parts[0].startswith(".")}

    def read(self, bucket, key):
        return (self.data / bucket / key).read_bytes()


class Namespace:
    """A user's namespace: the keys to the store in a Secret, which the controller may read."""

    def __init__(self, cluster, store):
        self.cluster, self.store = cluster, store
        self.name = f"team-{next(numbers)}"
        cluster.kubectl("create", "namespace", self.name)
        cluster.kubectl("create", "secret", "generic", "keys", "-n", self.name,
                        f"--from-literal=access_key_id={versitygw.ACCESS_KEY}",
                        f"--from-literal=secret_access_key={versitygw.SECRET_KEY}")
        cluster.kubectl("create", "rolebinding", "cistern-credentials", "-n", self.name,
                        "--clusterrole=cistern-credentials", f"--serviceaccount={NAMESPACE}:cistern-controller")

    def source(self, name, uri=None, **spec):
        where = {"endpoint": self.store.url, "region": versitygw.REGION, "pathStyle": True, "secretRef": {"name": "keys"}}
        return {"apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": name},
                "spec": {**({"uri": uri} if uri else {}), **where, **spec}}

    def claim(self, name, source=None, size="1Gi", **annotations):
        spec = {"storageClassName": "cistern", "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": size}}}
        if source:
            spec["dataSourceRef"] = {"apiGroup": "cistern.io", "kind": "BucketSource", "name": source}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "annotations": annotations},
                "spec": spec}

    def pod(self, name, claim, script):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"terminationGracePeriodSeconds": 1, "restartPolicy": "Never",
                         "containers": [{"name": "main", **BUSYBOX, "command": ["sh", "-c", script],
                                         "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                         "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}}

    def apply(self, *objects):
        self.cluster.apply(*objects, namespace=self.name)

    def await_pod(self, name, phase="Running", seconds=90):
        try:
            return self.cluster.await_pod(name, phase, self.name, seconds)
        except AssertionError as error:
            told = self.cluster.kubectl("get", "civ,cip,jobs,pvc,pv,pods", "-A", "-o", "wide", check=False).stdout
            events = self.cluster.kubectl("get", "events", "-A", check=False).stdout
            raise AssertionError(f"{error}\n{told}\n{events}\n{logs(self.cluster)}")

    def logs(self, pod):
        return self.cluster.kubectl("logs", "-n", self.name, pod)

    def await_logs(self, pod, text, seconds=60):
        """A pod is Running before its first command has written anything."""
        eventually(lambda: self.logs(pod) == text, f"pod {self.name}/{pod} writes {text!r}, and nothing else", seconds)

    def exec(self, pod, *command):
        return self.cluster.exec(pod, *command, namespace=self.name)

    def volume(self, claim):
        """The CisternVolume of a claim."""
        return next(v for v in self.cluster.api.list(f"{API}/cisternvolumes")
                    if v["spec"].get("claim") == f"{self.name}/{claim}")

    def events(self, name):
        return {e["reason"] for e in self.cluster.api.list(f"/api/v1/namespaces/{self.name}/events")
                if e["involvedObject"]["name"] == name}

    def delete(self, *what):
        self.cluster.kubectl("delete", *what, "-n", self.name, "--timeout=90s")

    def remove(self, seconds=120):
        """Deletes running pods first: the namespace's own deletion looks again only every eight seconds."""
        self.cluster.kubectl("delete", "deployments,jobs,pods,pvc", "--all", "-n", self.name, f"--timeout={seconds}s",
                             timeout=seconds + 30)
        self.cluster.kubectl("delete", "namespace", self.name, "--ignore-not-found", "--wait=false")


def explained(cluster, holds, what, seconds):
    """As eventually, and if the time runs out, with a report of the cluster."""
    try:
        return eventually(holds, what, seconds, 0.5)
    except AssertionError as error:
        told = cluster.kubectl("get", "civ,pvc,pv,jobs,pods", "-A", "-o", "wide", check=False).stdout
        raise AssertionError(f"{error}\n{told}\n{logs(cluster)}")


def left_on(node):
    """Directories of volumes and of their trash, mounts, mount processes and loop devices."""
    inherited = pathlib.Path("/proc/self/mounts").read_text().splitlines()  # of the host, when the node was booted
    left = node.run("find", "/mnt/disks/cistern/volumes", "/mnt/disks/cistern/trash", "-mindepth", "1", "-maxdepth", "1").split()
    left += [line.split()[1] for line in node.run("cat", "/proc/mounts").splitlines()
             if line not in inherited and ("/mnt/disks/cistern/" in line or " fuse.cistern " in line)]
    left += [f"cistern-mount {pid}" for pid in node.run("pidof", "cistern-mount", check=False).stdout.split()]
    left += [inner for outer in loops_on(node.image) for inner in loops_on(outer)]
    return [f"{what} on {node.name}" for what in left]


def left_in(cluster):
    """Objects of Cistern's in the API server that belong to a volume."""
    core = f"/api/v1/namespaces/{NAMESPACE}"
    for path in (f"{API}/cisternvolumes", "/api/v1/persistentvolumes", f"{core}/persistentvolumeclaims",
                 f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"{core}/pods?labelSelector=app.kubernetes.io/component=job"):
        yield from (f"{o['metadata']['name']} of {path}" for o in cluster.api.list(path))
    for secret in cluster.api.list(f"{core}/secrets"):
        if secret["type"] != "helm.sh/release.v1" and not secret["metadata"]["name"].startswith("cistern-broker"):
            yield f"secret {secret['metadata']['name']}"


def nothing_is_left(cluster, seconds=90):
    """Neither objects nor anything on the nodes."""
    def nothing_left():
        left = [*left_in(cluster), *(what for node in cluster.nodes.values() for what in left_on(node))]
        if left:
            raise AssertionError(f"left: {left}")
        return True

    explained(cluster, nothing_left, "nothing is left", seconds)
