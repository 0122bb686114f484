# SPDX-License-Identifier: Apache-2.0
"""Cistern in the test cluster: its image, made of this machine's build, and its chart."""

import json
import os
import pathlib
import subprocess

from paths import BUILD, CACHE, TOP

from . import image
from .machine import BIN, eventually

IMAGE = "localhost/cistern:test"
SIDECARS = {name: f"localhost/{name}:test" for name in ("csi-provisioner", "csi-resizer")}
NAMESPACE = "cistern-system"
DRIVER = "csi.cistern.io"
API = "/apis/cistern.io/v1alpha1"


def suite():
    release = pathlib.Path("/etc/os-release").read_text()
    return next(line.split("=")[1].strip('"') for line in release.splitlines() if line.startswith("VERSION_CODENAME="))


def make_rootfs(folder):
    env = {**os.environ, "CISTERN_DEBS": str(CACHE / "kubernetes/debs")}  # the cluster's network leads nowhere
    subprocess.run([TOP / "deploy/image/rootfs", suite(), BUILD / "bin", folder], check=True, env=env)
    return folder


def final_stage():
    """The instructions of the Dockerfile's last stage, which e2e's image is made by too: [[word, the rest]]."""
    text = (TOP / "deploy/image/Dockerfile").read_text()
    lines = [line for line in text[text.rindex("\nFROM "):].splitlines() if line and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in lines]


def import_images(cluster):
    said = dict(final_stage())
    assert set(said) == {"FROM", "COPY", "USER", "ENTRYPOINT"}, "e2e's image would not be the Dockerfile's"
    image.write(cluster.folder / "cistern.tar", IMAGE, image.layer_of_folder(make_rootfs(cluster.folder / "rootfs")),
                entrypoint=json.loads(said["ENTRYPOINT"]), user=said["USER"])
    for name, tag in SIDECARS.items():
        image.program(cluster.folder / f"{name}.tar", tag, BIN / name)
    for name in ("cistern", *SIDECARS):
        cluster.import_image(cluster.folder / f"{name}.tar")


def helm(cluster, *arguments, check=True):
    env = {**os.environ, "KUBECONFIG": str(cluster.control.admin), "HELM_CACHE_HOME": str(cluster.folder / "helm"),
           "HELM_CONFIG_HOME": str(cluster.folder / "helm"), "HELM_DATA_HOME": str(cluster.folder / "helm")}
    done = subprocess.run([BIN / "helm", "--namespace", NAMESPACE, *arguments], capture_output=True, text=True, env=env)
    if check and done.returncode:
        raise RuntimeError(f"helm {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout if check else done


def values(**more):
    repository, tag = IMAGE.split(":")
    return {"image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "sidecars": {"provisioner": {"image": SIDECARS["csi-provisioner"]}, "resizer": {"image": SIDECARS["csi-resizer"]}},
            "cleanup": {"nodeGoneGrace": "10s"},
            "node": {"logLevel": "debug"}, "keeper": {"logLevel": "debug"}, "controller": {"logLevel": "debug"}, **more}


def install(cluster, **more):
    file = cluster.folder / "values.json"
    file.write_text(json.dumps(values(**more)))
    helm(cluster, "upgrade", "--install", "cistern", TOP / "charts/cistern", "--create-namespace", "--values", file)


def pods(cluster, component):
    """Pods of one component that are not terminating, by node."""
    found = cluster.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector="
                             f"app.kubernetes.io/part-of=cistern,app.kubernetes.io/component={component}")
    return {pod["spec"].get("nodeName"): pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def await_nodes(cluster, seconds=60):
    """Driver and keeper run on each node, and the kubelet knows the driver."""
    def there():
        cluster.check()
        for component in ("node", "keeper"):
            found = pods(cluster, component)
            if set(found) != set(cluster.nodes) or not all(map(is_ready, found.values())):
                return False
        return all(DRIVER in drivers(cluster, name) for name in cluster.nodes)

    try:
        eventually(there, "the driver is registered on both nodes", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.kubectl('describe', 'pods', '-n', NAMESPACE)}\n{logs(cluster)}")


def drivers(cluster, node):
    return [d["name"] for d in cluster.api.get(f"/apis/storage.k8s.io/v1/csinodes/{node}")["spec"].get("drivers") or []]


def logs(cluster, tail=40):
    text = []
    for component in ("controller", "node", "keeper", "job"):
        for pod in pods(cluster, component).values():
            name = pod["metadata"]["name"]
            done = cluster.kubectl("logs", "-n", NAMESPACE, name, "--all-containers", "--prefix", f"--tail={tail}", check=False)
            text.append(f"--- {name}\n{done.stdout}{done.stderr}")
    return "\n".join(text)


def bound_token(cluster, account, pod, *audiences):
    """A token as the kubelet gives it to this pod."""
    reply = cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": audiences, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"],
                                                            "uid": pod["metadata"]["uid"]}}})
    return reply["status"]["token"]
