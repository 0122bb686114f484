# SPDX-License-Identifier: Apache-2.0
"""Take-overs in which a program dies: one keeper goes on to serve the mounts."""

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

from . import mounts
from .keeper_test import mirrors  # noqa: F401
from .versions_test import NEWER, TODAY, Load

ROLLS = int(os.environ.get("CISTERN_ROLLS", "12"))  # 300 before it was called done

TAKE_OVER, SYNCED = 7, 12


class Taker:
    """A keeper that asks for everything and dies."""

    def __init__(self, keeper):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(keeper.socket)
        self.socket.settimeout(10)
        self.socket.send(struct.pack("<HHiQ", 1, TAKE_OVER, 0, 1) + bytes(128))

    def receive_all(self):
        kinds = []
        while not kinds or kinds[-1] != SYNCED:
            message, fds, _, _ = socket.recv_fds(self.socket, 65536, 3)
            for fd in fds:
                os.close(fd)
            kinds.append(struct.unpack_from("<HH", message)[1])

    def die(self):
        self.socket.close()


def test_a_taker_that_dies_at_once_leaves_the_other_serving(volumes):
    volume = volumes("v", "exclusive")
    load = Load(volume.path)
    for _ in range(10):
        Taker(volume.keeper).die()
        load.goes_on()
        assert volume.keeper.process.poll() is None
    load.stop()


def test_a_taker_that_dies_with_everything_leaves_the_other_serving(volumes):
    volume = volumes("v", "exclusive")
    load = Load(volume.path)
    for _ in range(10):
        taker = Taker(volume.keeper)
        taker.receive_all()
        taker.die()
        load.goes_on()
        assert volume.keeper.process.poll() is None
    load.stop()


def test_a_keeper_whose_predecessor_dies_at_its_question_serves(tmp_path):
    """A keeper that is killed while it forks: its child has the listening socket for some microseconds more."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "keeper.sock"))
    listener.listen()
    starting = threading.Thread(target=lambda: started.append(mounts.Keeper(tmp_path)))
    started = []
    starting.start()
    asked, _ = listener.accept()
    assert struct.unpack_from("<HH", asked.recv(65536))[1] == TAKE_OVER
    listener.close()
    asked.close()
    starting.join(20)
    assert started, (tmp_path / "keeper.log").read_text()
    assert started[0].ask("status", "v", check=False).stderr.startswith("NOT_FOUND")
    started[0].stop()


def test_a_mount_that_begins_during_a_take_over_that_ends_asks_for_a_retry(disk, tmp_path):
    waiting, may_begin = tmp_path / "waiting-mount", tmp_path / "may-begin"
    waiting.write_text(f'#!/bin/sh\nuntil [ -e {may_begin} ]; do sleep 0.05; done\nexec {mounts.MOUNT_PROCESS} "$@"\n')
    waiting.chmod(0o700)
    keeper = mounts.Keeper(tmp_path, program=waiting)
    data, path = disk.path / "v", tmp_path / "mnt"
    data.mkdir()
    path.mkdir()
    mount = [mounts.CLIENT, keeper.socket, "mount", "v", data, path]
    with subprocess.Popen(mount, stderr=subprocess.PIPE, text=True) as client:
        mounts.wait_for("the mount", lambda: f" {path} " in Path("/proc/self/mountinfo").read_text())
        taker = Taker(keeper)
        taker.receive_all()
        taker.die()
        assert client.stderr.read().startswith("AGAIN ")
    may_begin.touch()
    keeper.ask(*mount[2:])
    keeper.ask("unmount", "v", 1000)
    keeper.stop()
    data.rmdir()


def test_a_taker_of_the_first_versions_hangs_up_before_it_listens(volumes, tmp_path):
    keeper = volumes("v", "exclusive").keeper
    taker = Taker(keeper)
    taker.receive_all()
    taker.die()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "next.sock"))
        os.rename(tmp_path / "next.sock", keeper.socket)
        assert keeper.process.wait(60) == 0
    keeper.start()


def one_answers(keeper, older, taker):
    """Starts another where both are dead, as the kubelet does."""
    alive = [p for p in (older, taker, keeper.process) if p.poll() is None]
    if not alive:
        keeper.start()
        return False
    keeper.process = alive[-1]
    return len(set(alive)) == 1 and keeper.ask("status", "v", check=False).returncode == 0


def test_kills_during_take_overs_by_either_version_are_not_noticed(volumes, mirrors):  # noqa: F811
    """One of keeper, next keeper, mount process and mirror dies at a random moment. Never both that hold the mount."""
    volume = volumes("v", "exclusive")
    keeper, mirror, dice = volume.keeper, mirrors(volume.keeper), random.Random(ROLLS)
    mirror.wait_for(1)
    load = Load(volume.path)
    for roll in range(ROLLS):
        binary, program, _ = dice.choice((TODAY, NEWER))
        victim = dice.choice(("older", "taker", "process", "mirror", "none"))
        older, pid = keeper.process, keeper.pid("v")
        with open(keeper.log, "ab") as log:
            taker = subprocess.Popen([binary, "--socket", keeper.socket, "--mount-program", program], stderr=log)
        time.sleep(dice.uniform(0, 0.03))
        if victim in ("older", "taker"):
            (older if victim == "older" else taker).kill()
        elif victim == "mirror":
            mirror.kill()
            mirror = mirrors(keeper)
        elif victim == "process":
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        mounts.wait_for("one keeper that answers", lambda: one_answers(keeper, older, taker), 30)
        try:
            mirror.wait_for(1)
            load.goes_on()
        except AssertionError as e:
            raise AssertionError(f"roll {roll} with {victim}") from e
    load.stop()
