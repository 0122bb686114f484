# SPDX-License-Identifier: Apache-2.0
"""A machine of the test cluster: namespaces of its own (mount, net, pid, ipc, uts), a directory that is its disk, daemons
with logs. It ends with its process 1, and that ends with us: a test run that is killed leaves no process and no mount."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from paths import CACHE, TOP

HERE = pathlib.Path(__file__).resolve().parent
DEATH_SECONDS = 120  # the longest that a killed process stays in a sync to a disk which other tests keep busy
BIN = CACHE / "kubernetes/bin"
DEBIAN = CACHE / "kubernetes/debian"
PATH = ":".join(map(str, [BIN, DEBIAN / "usr/bin", DEBIAN / "usr/sbin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]))


class DaemonEnded(Exception):
    """No use to wait any longer."""


def eventually(holds, what, seconds=60, pause=0.1):
    """The first true answer of `holds`; its exceptions are a no."""
    deadline = time.monotonic() + seconds
    last = None
    while True:
        try:
            last = holds()
            if last:
                return last
        except DaemonEnded:
            raise
        except Exception as error:  # noqa: BLE001 (it is reported if the time runs out)
            last = error
        if time.monotonic() > deadline:
            detail = (getattr(last, "stderr", None) or "") if isinstance(last, subprocess.CalledProcessError) else ""
            raise AssertionError(f"{what}: not within {seconds} s; last: {last!r} {detail}")
        time.sleep(pause)


def loops_on(device_or_file):
    """The loop devices whose backing file is this one, or lies on the file system of this block device."""
    status = os.stat(device_or_file)
    block = os.path.realpath(device_or_file).startswith("/dev/")
    listed = subprocess.run(["losetup", "--json", "--output", "NAME,BACK-MAJ:MIN,BACK-INO"], capture_output=True,
                            text=True, check=True).stdout
    found = []
    for loop in json.loads(listed)["loopdevices"] if listed.strip() else []:
        on = loop["back-maj:min"].strip()
        if block and on == f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}":
            found.append(loop["name"])
        if not block and int(loop["back-ino"]) == status.st_ino and \
                on == f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}":
            found.append(loop["name"])
    return found


def release_image(image):
    """Detaches every loop device on a dead machine's disk image, and on the file system inside it."""
    def no_loop_left():
        outer = loops_on(image)
        for device in outer:
            for inner in loops_on(device):
                subprocess.run(["losetup", "--detach", inner], capture_output=True)
            subprocess.run(["losetup", "--detach", device], capture_output=True)
        return not outer

    eventually(no_loop_left, f"the loop devices on {image} are gone", DEATH_SECONDS)


class Machine:
    def __init__(self, name, folder, init):
        self.name, self.folder, self.init = name, folder, init
        self.launcher = self.pid = None
        self.daemons = {}
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)

    def boot(self):
        shared = [str(self.folder.parent), str(CACHE), str(TOP)]
        var = self.folder / "var"
        for path in shared:  # below /var, which is the machine's own
            if path.startswith("/var/"):
                (var / path[len("/var/"):]).mkdir(parents=True, exist_ok=True)
        (self.folder / "ready").unlink(missing_ok=True)
        with open(self.logs / "boot.log", "ab") as log:
            # The launcher dies with us, process 1 with the launcher, and everything else with process 1.
            self.launcher = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork",
                 "--kill-child", "sh", str(HERE / "machine.sh"), self.name, str(self.folder), str(self.init), *shared],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

        def ready():
            if self.launcher.poll() is not None:
                raise RuntimeError((self.logs / "boot.log").read_text())
            return (self.folder / "ready").exists()

        eventually(ready, f"machine {self.name} booted", 20, 0.01)
        launcher = self.launcher.pid
        self.pid = int(pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()[0])

    def inside(self, *command):
        """The command line that runs this one in the machine."""
        return ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--ipc", "--uts", "--wdns=/", "--",
                "env", f"PATH={PATH}", *map(str, command)]

    def run(self, *command, check=True, timeout=60, **more):
        done = subprocess.run(self.inside(*command), capture_output=True, text=True, timeout=timeout, **more)
        if check and done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, command))}: {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout if check else done

    def start(self, name, *command):
        with open(self.logs / f"{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(self.inside(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                  start_new_session=True)

    def stop(self, name, sig=signal.SIGTERM, wait=10):
        """Ends one daemon. nsenter is its parent, and passes no signal on."""
        nsenter = self.daemons.pop(name)
        for child in pathlib.Path(f"/proc/{nsenter.pid}/task/{nsenter.pid}/children").read_text().split():
            os.kill(int(child), sig)
        nsenter.wait(wait)

    def check(self):
        for name, daemon in self.daemons.items():
            if daemon.poll() is not None:
                tail = (self.logs / f"{name}.log").read_text(errors="replace")[-3000:]
                raise DaemonEnded(f"{self.name}: {name} ended with {daemon.returncode}: {tail}")

    def power_off(self):
        """As if its power was cut: no process is notified, and only the disk is left."""
        if self.launcher is None:
            return
        if self.pid and self.launcher.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.launcher.kill()
        killed = [self.launcher, *self.daemons.values()]
        self.daemons, self.launcher, self.pid = {}, None, None  # it is off, even if one of them takes too long to end
        for process in killed:
            process.wait(DEATH_SECONDS)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
