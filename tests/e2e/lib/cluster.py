# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes of a control plane and two nodes, as plain processes in namespaces of their own: no container engine,
no image registry, nothing installed, no port on the host. While it is up, this process lives in the control plane's
network: the API server, nodes, pods and Services have their own addresses, and a server that a test starts is reached
by pods at HOST."""

import concurrent.futures
import ctypes
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from . import cgroups, image
from .control import ADDRESS, Api, Control
from .machine import BIN, DEBIAN, HERE, eventually, release_image
from .node import Node

HOST = ADDRESS
PREFIX = "cistern-e2e-"
PARENT = pathlib.Path("/tmp")
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def enter_network(path):
    with open(path, "rb") as handle:
        if libc.setns(handle.fileno(), CLONE_NEWNET) < 0:
            raise OSError(ctypes.get_errno(), f"setns {path}")


def locked(folder):
    """The lock that shows that the directory's cluster is alive, or None if another process holds it."""
    handle = open(folder / "lock", "ab")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    except BlockingIOError:
        handle.close()
        return None


def remove(folder):
    """Removes the rest of a dead cluster: its processes and mounts ended with their creator."""
    for disk in folder.glob("*/pool.img"):
        release_image(disk)
    for name in cgroups.names(f"{folder.name}-"):
        cgroups.remove(name)
    shutil.rmtree(folder, ignore_errors=True)


def new_folder():
    """A new directory, locked; those of runs that were killed are cleaned up first."""
    with open(PARENT / f".{PREFIX}lock", "ab") as guard:  # a new directory is not swept before it is locked
        fcntl.flock(guard, fcntl.LOCK_EX)
        for old in PARENT.glob(f"{PREFIX}*"):
            lock = locked(old)
            if lock:
                remove(old)
                lock.close()
        folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=PARENT))
        folder.chmod(0o755)
        return folder, locked(folder)


class Cluster:
    def __init__(self, *api_flags):
        """More flags for the API server may be given; a file that they name is visible to it in `self.folder`."""
        self.folder, self.lock = new_folder()
        self.api_flags = [str(flag).format(folder=self.folder) for flag in api_flags]
        self.nodes = {}
        self.control = None
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.init = self.folder / "init"

    def up(self):
        began = time.monotonic()
        subprocess.run(["cc", "-static", "-O2", "-o", str(self.init), str(HERE / "init.c")], check=True)
        self.control = Control(self)
        self.pki = self.control.pki
        self.control.boot()
        enter_network(f"/proc/{self.control.pid}/ns/net")
        self.api = Api(self.pki)
        for number, name in enumerate(("node-a", "node-b"), 1):
            self.nodes[name] = Node(self, name, number)
            self.nodes[name].boot()
        self.control.run("ip", "route", "add", "10.96.0.0/16", "via", self.nodes["node-a"].address)
        archives = self.base_images()
        for node in self.nodes.values():
            for archive in archives:
                node.import_image(archive)
        self.control.start_controllers()
        self.await_nodes()
        eventually(lambda: self.api.exists("/api/v1/namespaces/default/serviceaccounts/default"), "the default account")
        self.seconds = time.monotonic() - began
        return self

    def base_images(self):
        image.write(self.folder / "pause.tar", "localhost/pause:1", image.layer_of_files({"pause": self.init.read_bytes()}),
                    entrypoint=["/pause"])
        image.busybox(self.folder / "busybox.tar", DEBIAN / "bin/busybox")
        return [self.folder / "pause.tar", self.folder / "busybox.tar"]

    def import_image(self, archive):
        """Into both nodes at once."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda node: node.import_image(archive), self.nodes.values()))

    def check(self):
        self.control.check()
        for node in self.nodes.values():
            node.check()

    def await_nodes(self, seconds=90):
        def ready():
            self.check()
            found = self.api.list("/api/v1/nodes")
            return len(found) == len(self.nodes) and all(
                c["status"] == "True" for n in found for c in n["status"].get("conditions", []) if c["type"] == "Ready") \
                and all(n["status"].get("conditions") and not n["spec"].get("taints") for n in found)

        eventually(ready, "both nodes are Ready", seconds)

    def down(self, keep_logs=None):
        if self.control and self.control.launcher:
            self.api = None
        libc.setns(self.home, CLONE_NEWNET)
        for machine in [*self.nodes.values(), self.control]:
            if machine:
                machine.power_off()
        if keep_logs:
            for logs in self.folder.glob("*/logs"):
                shutil.copytree(logs, pathlib.Path(keep_logs) / logs.parent.name, dirs_exist_ok=True)
            for logs in self.folder.glob("*/var/log/pods"):
                shutil.copytree(logs, pathlib.Path(keep_logs) / logs.parents[2].name / "pods", dirs_exist_ok=True)
        remove(self.folder)
        self.lock.close()
        os.close(self.home)

    def kubectl(self, *arguments, stdin=None, check=True, timeout=120):
        done = subprocess.run([str(BIN / "kubectl"), "--kubeconfig", str(self.control.admin), *map(str, arguments)],
                              input=stdin, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout if check else done

    def apply(self, *objects, namespace="default"):
        """Objects as dicts, or manifests as text."""
        for one in objects:
            text = one if isinstance(one, str) else json.dumps(one)
            self.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=text)

    def pod(self, name, namespace="default"):
        return self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def await_pod(self, name, phase="Running", namespace="default", seconds=60):
        def there():
            self.check()
            pod = self.pod(name, namespace)
            now = pod["status"]["phase"]
            if now == phase and (phase != "Running" or all(c["ready"] for c in pod["status"].get("containerStatuses", []))):
                return pod
            return None

        try:
            return eventually(there, f"pod {namespace}/{name} is {phase}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.kubectl('describe', 'pod', '-n', namespace, name, check=False).stdout}")

    def exec(self, pod, *command, namespace="default", check=True):
        return self.kubectl("exec", "-n", namespace, pod, "--", *command, check=check)
