# SPDX-License-Identifier: Apache-2.0
"""cisternd --role=node with its keeper, as its two pods are on a node, and a kubelet that registers what it finds."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
from grpc_tools import protoc

from integration.csi.driver import Client, Driver, wait_for
from paths import BUILD, TOP


def _stubs():
    with tempfile.TemporaryDirectory(prefix="cistern-stubs-") as out:
        code = protoc.main(["protoc", f"-I{TOP / 'proto'}", f"--python_out={out}", f"--grpc_python_out={out}",
                            "pluginregistration.proto"])
        assert code == 0
        sys.path.insert(0, out)
        import pluginregistration_pb2
        import pluginregistration_pb2_grpc
        sys.path.remove(out)
    return pluginregistration_pb2, pluginregistration_pb2_grpc


registration, registration_grpc = _stubs()


def no_api_server(folder):
    """A kubeconfig of an API server that is down."""
    path = Path(folder) / "nobody.kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": "none"}}]}))
    return str(path)


class Node(Driver):
    """A node's driver: the keeper is a process of its own, which outlives it. Several may share one `folder`, as the two
    pods of a roll do: then only the first starts the keeper."""

    def __init__(self, folder, pools=("default",), flags=(), env=None, name="node-1", keeper=None, log="cisternd.log",
                 kubeconfig=None):
        super().__init__(folder, pools, flags, env)
        self.name, self.keeper = name, keeper
        self.kubeconfig = kubeconfig or no_api_server(self.folder)
        self.log = self.folder / log
        self.plugins = self.folder / "plugins_registry"
        self.plugins.mkdir(exist_ok=True)

    @staticmethod
    def _asked_again(call, *words, **options):
        """As the kubelet does while the agent itself changes the volume."""
        for _ in range(100):
            try:
                return call(*words, **options)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.ABORTED:
                    raise
                time.sleep(0.1)
        return call(*words, **options)

    def unpublish(self, *words, **options):
        self._asked_again(super().unpublish, *words, **options)

    def unstage(self, *words, **options):
        self._asked_again(super().unstage, *words, **options)

    def start_keeper(self, *flags, program=BUILD / "bin/cistern-keeper"):
        """An existing keeper hands everything over and ends."""
        self.state.mkdir(exist_ok=True)
        with open(self.folder / "keeper.log", "ab") as log:
            self.keeper = subprocess.Popen([program, f"--socket={self.state}/keeper.sock", *flags],
                                           stderr=log, stdin=subprocess.DEVNULL)
        wait_for((self.state / "keeper.sock").exists)

    def command(self):
        pools = [f"--pool={name}={path}" for name, path in self.pools.items()]
        return [BUILD / "bin" / "cisternd", "--role=node", f"--node-name={self.name}", f"--endpoint=unix://{self.socket}",
                f"--state={self.state}", f"--kubelet-registration={self.plugins}", f"--kubeconfig={self.kubeconfig}",
                "--log-level=debug", "--reserve-percent=0", *pools, *self.flags]

    def start(self):
        if not self.keeper:
            self.start_keeper()
        served = self.log_text().count("event=serving ")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stderr=log, stdin=subprocess.DEVNULL, env=os.environ | self.env)
        wait_for(lambda: self.log_text().count("event=serving ") > served or self.process.poll() is not None)
        self.wait_until_it_answers()
        return self

    def clean_up(self):
        super().clean_up()
        if self.keeper:
            self.keeper.wait()


class Kubelet:
    """The directory plugins_registry of a real kubelet (pkg/kubelet/pluginmanager). A new or replaced socket is
    unregistered if it was known, then asked for its name. A removed socket is unregistered. A question that begins while
    the socket is dead reaches the one that replaces it, which then counts as replaced. No socket is asked before the
    event `asks`. One that `hesitates` begins to ask before a driver can know of it, and clears `asks` when it first
    unregisters a driver."""

    def __init__(self, folder, refuse=0, makes_its_socket=True, asks=True, hesitates=False):
        self.folder, self.refuse = Path(folder), refuse
        self.known, self.drivers, self.history = {}, {}, []
        if makes_its_socket and not hesitates:
            self._make_own_socket()
        self.stopping, self.asks, self.hesitates = threading.Event(), threading.Event(), hesitates
        if asks:
            self.asks.set()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self):
        self.stopping.set()
        self.thread.join()

    def _make_own_socket(self):
        own = self.folder.parent / "device-plugins" / "kubelet.sock"
        own.parent.mkdir(exist_ok=True)
        own.unlink(missing_ok=True)
        own.touch()

    def _run(self):
        while True:
            found = {}
            for path in self.folder.iterdir():
                if not path.name.startswith("."):
                    try:
                        found[path] = path.stat().st_ino
                    except FileNotFoundError:
                        pass
            for path in [p for p, ino in self.known.items() if found.get(p) != ino]:
                del self.known[path]
                for name in [n for n, (_, by) in self.drivers.items() if by == path]:
                    del self.drivers[name]
                    self.history.append(("unregistered", name))
                    if self.hesitates:
                        self.asks.clear()
                        self.hesitates = False
            for path, ino in found.items():
                if path not in self.known and self.asks.is_set():
                    self._register(path, ino)
            if self.stopping.wait(0.05):
                return

    def _register(self, path, ino):
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = registration_grpc.RegistrationStub(channel)
            question = stub.GetInfo.future(registration.InfoRequest(), timeout=10, wait_for_ready=True)
            if self.hesitates:
                self._make_own_socket()
            try:
                info = question.result()
            except grpc.RpcError:
                return  # asked again, as the real one does with back-off
            self.known[path] = ino
            refused, self.refuse = self.refuse > 0, max(0, self.refuse - 1)
            if not refused:
                client = Client(info.endpoint)
                node = client.call("NodeGetInfo", timeout=5)
                client.close()
            self.history.append(("refused" if refused else "registered", info.name, node.node_id if not refused else ""))
            assert info.type == "CSIPlugin" and list(info.supported_versions) == ["1.0.0"]
            stub.NotifyRegistrationStatus(registration.RegistrationStatus(
                plugin_registered=not refused, error="no" if refused else ""), timeout=5)
            if not refused:
                self.drivers[info.name] = (info.endpoint, path)

    def wait_for_driver(self, seconds=60):
        wait_for(lambda: "csi.cistern.io" in self.drivers, seconds)


def hold_true(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition()
        time.sleep(0.02)


# ---- the controller's and the Jobs' parts, as far as the node sees them -------------------------------------------------

API = "/apis/cistern.io/v1alpha1"
MIB = 1 << 20


class Orders:
    """Writes orders as the controller does, and runs what it would run as Jobs."""

    def __init__(self, cluster, node_name="node-1"):
        self.cluster, self.node = cluster, node_name

    def pool(self, pool="default"):
        return self.cluster.get(f"{API}/cisternpools/{self.node}.{pool}")

    def wait_for_pool(self, condition=lambda p: True, pool="default", seconds=60):
        def look():
            try:
                p = self.pool(pool)
            except Exception:
                return False
            return "status" in p and condition(p)
        wait_for(look, seconds)
        return self.pool(pool)

    def bump(self, pool="default"):
        generation = self.pool(pool)["spec"].get("volumesGeneration", 0) + 1
        self.cluster.patch(f"{API}/cisternpools/{self.node}.{pool}", {"spec": {"volumesGeneration": generation}})
        return generation

    def touch(self, name):
        """The node looks at this volume again: of a listed pool it takes only orders that changed."""
        self.cluster.patch(f"{API}/cisternvolumes/{name}", {"metadata": {"annotations": {"touched": str(time.time())}}})
        self.bump()

    def id_of(self, name, pool_uuid):
        return f"v1-{pool_uuid}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"

    def order(self, name, size=32 * MIB, pool="default", pool_uuid=None, source=None, node=None, **parameters):
        uuid = pool_uuid or self.wait_for_pool(pool=pool)["status"]["poolUUID"]
        spec = {"volumeID": self.id_of(name, uuid), "nodeName": node or self.node, "pool": pool, "capacityBytes": size,
                "parameters": {"pool": pool, **parameters}}
        if source:
            spec["source"] = {"namespace": "default", "name": "s", "generation": 1, "spec": source}
        self.cluster.create(f"{API}/cisternvolumes", {
            "apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume", "spec": spec,
            "metadata": {"name": name, "labels": {"cistern.io/node": self.node}, "finalizers": ["cistern.io/release"]}})
        self.bump(pool)
        return spec["volumeID"]

    def get(self, name):
        return self.cluster.get(f"{API}/cisternvolumes/{name}")

    def status(self, name):
        return self.get(name).get("status", {})

    def condition(self, name, kind):
        return next((c for c in self.status(name).get("conditions", []) if c["type"] == kind), {"status": "", "reason": ""})

    def has_condition(self, name, kind, status, reason=None):
        c = self.condition(name, kind)
        return c["status"] == status and (reason is None or c["reason"] == reason)

    def wait(self, name, kind, status, reason=None, seconds=60):
        try:
            wait_for(lambda: self.has_condition(name, kind, status, reason), seconds)
        except AssertionError:
            raise AssertionError(f"{kind} is not {status} {reason}: {json.dumps(self.status(name), indent=1)}")
        return self.condition(name, kind)

    def wait_touching(self, name, kind, status, reason=None, seconds=120):
        """The same. Else the node looks once a minute at a volume whose order stays the same."""
        deadline = time.monotonic() + seconds
        while not self.has_condition(name, kind, status, reason):
            assert time.monotonic() < deadline, json.dumps(self.status(name), indent=1)
            self.touch(name)
            time.sleep(0.5)
        return self.condition(name, kind)

    def wait_phase(self, name, phase, seconds=60):
        try:
            wait_for(lambda: self.status(name).get("phase") == phase, seconds)
        except AssertionError:
            raise AssertionError(f"phase is not {phase}: {json.dumps(self.status(name), indent=1)}")
        return self.status(name)

    def wait_export_before_release(self, name, seconds=60):
        """Until the node has closed the volume: an export that begins before does not count for the release, although the
        phase is Exporting since the last pod ended."""
        wait_for(lambda: self.condition(name, "Exported").get("message") == "the volume is exported before its release", seconds)

    def make(self, name, **order):
        volume_id = self.order(name, **order)
        self.wait(name, "Provisioned", "True")
        return volume_id

    def release(self, name, discard=False):
        self.cluster.patch(f"{API}/cisternvolumes/{name}", {"spec": {"release": {"requested": True, "discard": discard}}})
        self.bump()

    def forget(self, name):
        """Deletes an order that was carried out, as the controller does."""
        self.cluster.delete(f"{API}/cisternvolumes/{name}")
        self.cluster.patch(f"{API}/cisternvolumes/{name}", {"metadata": {"finalizers": []}})


def job(verb, folder, *flags):
    """A hydrate or export Job: the same command on the volume's directory."""
    return subprocess.Popen([BUILD / "bin" / "cistern", verb, "--no-progress", "--volume", folder, *flags],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def blank(**parameters):
    return {"hydration": "none", **parameters}


def bucket(folder, objects=3, size=1000):
    path = folder / "bucket"
    path.mkdir(exist_ok=True)
    for i in range(objects):
        (path / f"object-{i}").write_bytes(os.urandom(size))
    return f"file://{path}/"


def exporting(folder):
    out = folder / "out"
    out.mkdir(exist_ok=True)
    return {"export": {"uri": f"file://{out}/", "settle": "0s"}}


def write_in_a_pod(agent, volume_id, text="1"):
    """A pod uses the volume, and ends."""
    agent.stage(volume_id)
    (agent.publish(volume_id) / "ckpt").write_text(text)
    agent.unpublish(volume_id)
    agent.unstage(volume_id)


def identity(node):
    return json.loads((Path(str(node.pools["default"]).split(",")[0]) / "cistern.json").read_text())


def replace(orders, uuid):
    """An administrator gives a pool up."""
    orders.cluster.patch(f"{API}/cisternpools/{orders.node}.default",
                         {"metadata": {"annotations": {"cistern.io/replace-pool": uuid}}})


def wipe(node, orders):
    """As a machine that came back with blank disks, and an administrator who says that the old ones are gone."""
    node.stop()
    pool, uuid = node.pools["default"], identity(node)["uuid"]
    for data in pool.glob("*/*/data"):
        subprocess.run(["umount", "-l", data], stderr=subprocess.DEVNULL)
        subprocess.run(["chattr", "-i", data], stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", pool], check=True)
    pool.mkdir()
    node.start()
    replace(orders, uuid)
