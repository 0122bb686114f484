# SPDX-License-Identifier: Apache-2.0
"""A machine whose power can be cut: an XFS on a disk that keeps only what was flushed (tests/crash/forgetful_disk.c),
with its own mount namespace, process namespace and boot id. A cut ends all its processes at once. After the next start,
flushed data is there. CISTERN_POWER_CUTS (4) is the number of cuts of a test, CISTERN_SEED gives other moments."""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import time
import uuid
from pathlib import Path

from paths import BUILD, TOP
from servers.bucket import BucketServer

CUTS = max(2, int(os.environ.get("CISTERN_POWER_CUTS", "4")))  # one while it runs, one after its end

PATIENCE = 300  # for each step; of a machine whose disk is busy, `sync` alone may take minutes

# The disk is not what is under test: a variant of the build need not have it.
DISK = next(b / "tests/forgetful_disk" for b in (BUILD, TOP / "build") if (b / "tests/forgetful_disk").exists())


@contextlib.contextmanager
def hashed_bucket(*objects):
    """A server of objects, "d/PREFIX:COUNT:SIZE" each; `want` has the hash of each by its path below d/."""
    with BucketServer(*(word for o in objects for word in ("--objects", o))) as server:
        listed = server.ask("/bench?list-type=2&prefix=d/&max-keys=1000").decode()
        keys = [part.split("</Key>")[0] for part in listed.split("<Key>")[1:]]
        server.want = {key[2:]: hashlib.sha256(server.content(key)).hexdigest() for key in keys}
        assert len(server.want) == sum(int(o.split(":")[1]) for o in objects)
        yield server


def hashes(folder):
    """The same of the files in a directory, without a hydration's own files."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in Path(folder).rglob("*") if p.is_file() and ".cistern-hydrate" not in p.parts}


# The first process of the machine. Its mounts, and those that are made in it, go when it dies.
BOOT = """set -e
mount --bind "$1" /proc/sys/kernel/random/boot_id
mount -t xfs -o nouuid "$2" "$3"
echo up
exec sleep infinity
"""


class Machine:
    def __init__(self, folder, name, mib=512):
        """Draws from `name` and CISTERN_SEED what is left to chance."""
        self.folder, self.dice = Path(folder), random.Random(os.environ.get("CISTERN_SEED", "") + name)
        self.stable, self.fuse, self.disk = (self.folder / name for name in ("stable", "fuse", "disk"))
        self.fuse.mkdir()
        self.disk.mkdir()
        with open(self.stable, "wb") as f:
            f.truncate(mib << 20)
        subprocess.run(["mkfs.xfs", "-q", "-K", self.stable], check=True)
        self.server = self.init = self.loop = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.off()

    def on(self):
        """Spins the disk up and mounts its file system at `disk`, as the processes of the machine see it."""
        self.server = subprocess.Popen([DISK, self.fuse, self.stable, str(self.dice.randrange(1 << 30))])
        self._wait(lambda: (self.fuse / "disk").exists())
        done = subprocess.run(["losetup", "--find", "--show", self.fuse / "disk"], capture_output=True, text=True,
                              check=True)
        self.loop = done.stdout.strip()
        boot_id = self.folder / "boot_id"
        boot_id.write_text(f"{uuid.UUID(int=self.dice.getrandbits(128))}\n")
        self.init = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private",
             "sh", "-c", BOOT, "boot", boot_id, self.loop, self.disk], stdout=subprocess.PIPE, text=True)
        assert self.init.stdout.readline() == "up\n", "the file system cannot be mounted again"
        return self

    def words(self, *command):
        """The words that run a command on the machine."""
        first = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()[0]
        return ["nsenter", "--target", first, "--mount", "--pid", "--wdns=/", *map(str, command)]

    def start(self, *command, **more):
        return subprocess.Popen(self.words(*command), **more)

    def run(self, *command, timeout=PATIENCE, **more):
        return subprocess.run(self.words(*command), capture_output=True, text=True, timeout=timeout, check=False, **more)

    def path(self, path):
        """Where the test finds what the machine's processes call `path`."""
        first = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()[0]
        return Path(f"/proc/{first}/root{path}")

    def cut(self):
        """The disk first: what dies would unmount, and so flush."""
        self.server.send_signal(signal.SIGKILL if self.dice.random() < 0.3 else signal.SIGUSR1)
        self.server.wait(PATIENCE)
        self._end()

    def cut_after(self, run, progress, fraction, whole):
        """Cuts the power when `progress()` has come to that fraction of `whole`; beyond 1, when the run has ended.
        Returns whether it had reported success."""
        begun, end = progress(), time.monotonic() + PATIENCE
        while run.poll() is None and (fraction > 1 or progress() - begun < fraction * whole):
            assert time.monotonic() < end, "it did not come so far"
            time.sleep(0.001)
        time.sleep(self.dice.uniform(0, 0.01))
        ended = run.poll() == 0
        self.cut()
        run.wait(PATIENCE)
        return ended

    def moments(self, proved=lambda: True):
        """Fractions of a run, CUTS of them spread evenly, the last one after its end. More follow until the test has
        `proved` its point: the disk decides how much is durable at a moment."""
        yield from ((i + self.dice.random()) / (CUTS - 1) for i in range(CUTS - 1))
        yield 2
        for _ in range(20):
            if proved():
                break
            yield self.dice.uniform(0.3, 0.95)

    def off(self):
        """In good order: everything is flushed."""
        if self.init:
            self.run("sync", "--file-system", self.disk)
        if self.server:
            self._end()

    def _end(self):
        if self.init:
            self.init.kill()
            self.init.wait(PATIENCE)
            self.init.stdout.close()
        if self.loop:
            # Busy until the last mount of the dying namespace is gone.
            self._wait(lambda: subprocess.run(["losetup", "--detach", self.loop], stderr=subprocess.DEVNULL,
                                              check=False).returncode == 0)
            self._wait(lambda: not self._backing())
        if self.server.poll() is None:
            # The loop device releases its file a moment after it shows none.
            self._wait(lambda: subprocess.run(["umount", self.fuse], stderr=subprocess.DEVNULL, check=False).returncode == 0)
            self.server.wait(PATIENCE)
        subprocess.run(["umount", "--lazy", self.fuse], stderr=subprocess.DEVNULL, check=False)
        self.server = self.init = self.loop = None

    def _backing(self):
        """Detaching waits for the last user of the device."""
        return Path(f"/sys/block/{Path(self.loop).name}/loop/backing_file").exists()

    @staticmethod
    def _wait(condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "it did not come to pass"
            time.sleep(0.005)
