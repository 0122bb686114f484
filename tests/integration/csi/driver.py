# SPDX-License-Identifier: Apache-2.0
"""cisternd as the tests run it, and a CSI client with stubs made from our own proto/csi.proto."""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import grpc_tools
from grpc_tools import protoc

from integration.lib.patience import pause
from paths import BUILD, TOP

MIB = 1 << 20
PATIENCE = 120  # seconds for a call, and to start or end a driver: the machine may be busy


def _stubs():
    with tempfile.TemporaryDirectory(prefix="cistern-stubs-") as out:
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        code = protoc.main(["protoc", f"-I{TOP / 'proto'}", f"-I{well_known}", f"--python_out={out}",
                            f"--grpc_python_out={out}", "csi.proto"])
        assert code == 0
        sys.path.insert(0, out)
        import csi_pb2
        import csi_pb2_grpc
        sys.path.remove(out)
    return csi_pb2, csi_pb2_grpc


csi, csi_grpc = _stubs()
Mode = csi.VolumeCapability.AccessMode


def capability(mode=Mode.SINGLE_NODE_WRITER, group=""):
    return csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume(volume_mount_group=group),
                                access_mode=Mode(mode=mode))


def listens(path):
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        return probe.connect_ex(str(path)) == 0


class Client:
    """One connection; `call(method, **fields)` finds the service and the request by the method's name."""

    def __init__(self, path):
        self.channel = grpc.insecure_channel(f"unix:{path}")
        self.stubs = [csi_grpc.IdentityStub(self.channel), csi_grpc.ControllerStub(self.channel),
                      csi_grpc.NodeStub(self.channel)]

    def call(self, method, timeout=PATIENCE, **fields):
        stub = next(s for s in self.stubs if hasattr(s, method))
        return getattr(stub, method)(getattr(csi, method + "Request")(**fields), timeout=timeout)

    def fails(self, method, timeout=30, **fields):
        """(status code, message) of a call that must fail."""
        try:
            reply = self.call(method, timeout=timeout, **fields)
        except grpc.RpcError as e:
            assert e.details(), "a status without a message"
            return e.code(), e.details()
        raise AssertionError(f"{method} succeeded: {reply}")

    def create(self, name, size=32 * MIB, limit=0, cap=None, **parameters):
        return self.call("CreateVolume", name=name, volume_capabilities=[cap or capability()], parameters=parameters,
                         capacity_range=csi.CapacityRange(required_bytes=size, limit_bytes=limit)).volume

    def close(self):
        self.channel.close()


class Child:
    """A cisternd: its process, a client of its socket, and its log."""

    process = client = log = None

    def stop(self, how=signal.SIGTERM):
        if self.client:
            self.client.close()
            self.client = None
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode if self.process else None

    def kill(self):
        return self.stop(signal.SIGKILL)

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Driver(Child):
    """A cisternd with a pool and sockets of its own below `folder`."""

    def __init__(self, folder, pools=("default",), flags=(), env=None):
        self.folder = Path(folder)
        self.socket = self.folder / "csi.sock"
        self.state = self.folder / "state"
        self.pools = {name: self.folder / f"pool-{name}" for name in pools}
        for path in self.pools.values():
            path.mkdir(exist_ok=True, parents=True)
        self.flags, self.env, self.process, self.client = list(flags), env or {}, None, None
        self.log = self.folder / "cisternd.log"

    def start(self):
        pools = [f"--pool={name}={path}" for name, path in self.pools.items()]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BUILD / "bin" / "cisternd", f"--endpoint=unix://{self.socket}", f"--state={self.state}",
                 "--node-id=node-1", "--log-level=debug", "--reserve-percent=0", *pools, *self.flags],
                stderr=log, stdin=subprocess.DEVNULL, env=os.environ | self.env)
        self.wait_until_it_answers()
        return self

    def wait_until_it_answers(self):
        end = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, f"cisternd ended with {self.process.returncode}: {self.log_text()[-3000:]}"
            assert time.monotonic() < end, self.log_text()[-3000:]
            if listens(self.socket):  # a gRPC channel for each look takes ten times as much
                client = Client(self.socket)
                try:
                    client.call("Probe", timeout=5)
                    self.client = client
                    return
                except grpc.RpcError:
                    client.close()
            time.sleep(0.02)

    def keeper_pids(self):
        return [pid for pid in processes() if f"{self.state}/keeper.sock" in command_line(pid)]

    def clean_up(self):
        """Ends what outlives a driver by design: children, the keeper, mounts."""
        self.stop()
        end_all(f"{self.folder}/")
        for _ in range(5):
            below = [m for m in mounts() if m.startswith(f"{self.folder}/")]
            for path in reversed(below):
                subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL)
            if not below:
                break
            time.sleep(0.1)
        guarded = [p for pool in self.pools.values() for p in pool.glob("*/*/data")]
        if guarded:
            subprocess.run(["chattr", "-i", *guarded], stderr=subprocess.DEVNULL)

    def end(self):
        """For good; what a sanitizer complains of is in the log, and in the exit code."""
        try:
            code = self.stop()
        finally:
            self.clean_up()
        assert code in (0, -signal.SIGKILL), self.log_text()[-5000:]

    # ---- the way of one volume, as the kubelet walks it ----

    def staging(self, volume_id):
        return self.folder / "staging" / volume_id

    def target(self, volume_id, pod="pod"):
        return self.folder / "pods" / pod / volume_id

    def stage(self, volume_id, cap=None, client=None):
        with contextlib.suppress(FileExistsError):  # and not is_dir(): the mount there may be dead
            os.makedirs(self.staging(volume_id))
        return (client or self.client).call("NodeStageVolume", volume_id=volume_id, volume_capability=cap or capability(),
                                            staging_target_path=str(self.staging(volume_id)))

    def is_staged(self, volume_id):
        """Asks as the kubelet does: again, while another call is at work on the volume."""
        try:
            self.stage(volume_id)
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.ABORTED, e
            return False
        return True

    def publish(self, volume_id, pod="pod", cap=None, readonly=False, timeout=30, client=None):
        self.target(volume_id, pod).parent.mkdir(parents=True, exist_ok=True)
        (client or self.client).call("NodePublishVolume", timeout=timeout, **self.publish_fields(volume_id, pod, cap, readonly))
        return self.target(volume_id, pod)

    def publish_fields(self, volume_id, pod="pod", cap=None, readonly=False):
        return {"volume_id": volume_id, "staging_target_path": str(self.staging(volume_id)), "readonly": readonly,
                "target_path": str(self.target(volume_id, pod)), "volume_capability": cap or capability()}

    def unpublish(self, volume_id, pod="pod", client=None):
        (client or self.client).call("NodeUnpublishVolume", volume_id=volume_id,
                                     target_path=str(self.target(volume_id, pod)))

    def unstage(self, volume_id, client=None):
        (client or self.client).call("NodeUnstageVolume", volume_id=volume_id,
                                     staging_target_path=str(self.staging(volume_id)))

    def delete(self, volume_id, client=None):
        (client or self.client).call("DeleteVolume", volume_id=volume_id)

    def folder_of(self, volume_id):
        return next(p / "volumes" / volume_id for p in self.pools.values() if (p / "volumes" / volume_id).exists())


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def has_ended(pid):
    """All threads: the descriptors of a process stay open until its last thread has ended. Its parent may not have read
    its exit status yet."""
    try:
        return all(path.read_text().rpartition(")")[2].split()[0] in "ZX" for path in Path(f"/proc/{pid}/task").glob("*/stat"))
    except OSError:
        return not Path(f"/proc/{pid}").exists()


def end_all(word):
    """Kills all processes with this word in their command line, and those that they start until then. Returns when they
    have ended: a process that was killed loses its command line before it closes its descriptors."""
    killed = set()
    while (found := [pid for pid in processes() if word in command_line(pid) and pid != os.getpid()]) or \
            not all(map(has_ended, killed)):
        for pid in found:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def mounts():
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def wait_for(condition, seconds=60):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, "it did not come to pass"
        pause(began)


def ask_until_ready(driver, volume, pod="pod", seconds=60):
    """NodePublishVolume, repeated as the kubelet does; the target."""
    end = time.monotonic() + seconds
    driver.target(volume, pod).parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            driver.client.call("NodePublishVolume", timeout=10, **driver.publish_fields(volume, pod))
            return driver.target(volume, pod)
        except grpc.RpcError as e:
            assert e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED), e
            assert time.monotonic() < end, e.details()
            time.sleep(0.1)


def delete_until(driver, volume, seconds=60):
    """The codes that DeleteVolume answered until it said OK."""
    codes, end = [], time.monotonic() + seconds
    while True:
        try:
            driver.delete(volume)
            return codes
        except grpc.RpcError as e:
            codes.append((e.code(), e.details()))
            assert time.monotonic() < end, codes[-1]
            time.sleep(0.05)
