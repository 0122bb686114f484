# SPDX-License-Identifier: Apache-2.0
"""A keeper, its mounts, and the ext4 below them: shared by the tests of this directory."""

import ctypes
import os
import signal
import subprocess
import time

from integration.lib.patience import pause
from paths import BUILD

KEEPER = BUILD / "bin/cistern-keeper"
MOUNT_PROCESS = BUILD / "tests/mount_process"
CLIENT = BUILD / "tests/keeper_client"

libc = ctypes.CDLL(None, use_errno=True)
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


def renameat2(old, new, flags):
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(old))


def name_open_file(fd, path):
    """linkat(2) of a file that may have no name."""
    if libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, os.fsencode(path), 0x400) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(path))


def wait_for(what, condition, seconds=60.0):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"waited {seconds} s for: {what}"
        pause(began)


def as_user(uid, act, gid=None, groups=()):
    """Runs act() in a process of that user and group (default: of the same number); returns its errno, 0 for none."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setresgid(*[uid if gid is None else gid] * 3)
            os.setresuid(uid, uid, uid)
            act()
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
        except BaseException:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Keeper:
    def __init__(self, folder, kill_at=None, program=MOUNT_PROCESS, binary=KEEPER):
        self.socket = str(folder / "keeper.sock")
        self.log = folder / "keeper.log"
        self.program, self.binary = program, binary
        self.env = dict(os.environ)
        if kill_at:
            self.env["CISTERN_TEST_KILL"] = kill_at
        self.process = None
        self.start()

    def start(self):
        before = os.stat(self.socket).st_ino if os.path.exists(self.socket) else None
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--socket", self.socket, "--mount-program", self.program], env=self.env, stderr=log
            )

        def is_there():
            assert self.process.poll() is None, "the keeper ended"
            return os.path.exists(self.socket) and os.stat(self.socket).st_ino != before

        wait_for("the keeper's socket", is_there)

    def ask(self, *words, check=True):
        done = subprocess.run(
            [CLIENT, self.socket, *map(str, words)], capture_output=True, text=True, timeout=60, check=False
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def status(self, volume):
        return dict(word.split("=") for word in self.ask("status", volume).stdout.split())

    def pid(self, volume):
        """Of the mount process; waits until it runs."""
        found = []

        def there():
            found[:] = [int(self.status(volume)["pid"])]
            return found[0] > 0

        wait_for("a mount process", there)
        return found[0]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Volume:
    """A lower directory and its mount point."""

    def __init__(self, keeper, disk, folder, name, *options):
        self.keeper, self.name, self.options = keeper, name, options
        self.data = disk.path / name
        self.data.mkdir(exist_ok=True)
        self.path = folder / f"mnt-{name}"
        self.path.mkdir(exist_ok=True)
        self.dead = None  # the mount process that was killed last
        self.mount()

    def mount(self):
        self.keeper.ask("mount", self.name, self.data, self.path, *self.options)

    def unmount(self, timeout_ms=1000):
        self.keeper.ask("unmount", self.name, timeout_ms)

    def status(self):
        return self.keeper.status(self.name)

    def kill(self, number=signal.SIGKILL):
        """Signals the mount process. The keeper may still name one that is dead, and that takes signals until it is buried."""
        wait_for("a living mount process", lambda: self.keeper.pid(self.name) != self.dead)
        pid = self.keeper.pid(self.name)
        os.kill(pid, number)
        if number == signal.SIGKILL:
            self.dead = pid
