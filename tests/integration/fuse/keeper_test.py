# SPDX-License-Identifier: Apache-2.0
"""The keeper: asked for mounts, killed, replaced, and given everything back."""

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from integration.lib.disk import Disk

from . import mounts


class Mirror:
    """Holds duplicates, as cisternd does."""

    def __init__(self, keeper):
        self.process = subprocess.Popen(
            [mounts.CLIENT, keeper.socket, "mirror"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def state(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        volumes, connected = self.process.stdout.readline().split()
        return int(volumes), connected == "1"

    def wait_for(self, volumes):
        mounts.wait_for("the mirror", lambda: self.state() == (volumes, True))

    def wait_for_descriptor_of(self, end):
        """Its link in /proc ends so."""
        fds = Path(f"/proc/{self.process.pid}/fd")
        mounts.wait_for("the descriptor in the mirror", lambda: any(str(fd.readlink()).endswith(end) for fd in fds.iterdir()))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture
def mirrors():
    made = []

    def make(keeper):
        made.append(Mirror(keeper))
        return made[-1]

    yield make
    for mirror in made:
        if mirror.process.poll() is None:
            mirror.kill()


def mounted_at(path):
    with open("/proc/self/mounts", encoding="utf-8") as table:
        return any(line.split()[1] == str(path) for line in table)


class Reader:
    """Reads a file again and again; any error is kept."""

    def __init__(self, path, content):
        self.path, self.content = path, content
        self.errors, self.rounds, self.stop_now, self.longest = [], 0, False, 0.0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop_now:
            began = time.monotonic()
            try:
                assert self.path.read_bytes() == self.content
                os.stat(self.path.parent / "nothing") if self.rounds < 0 else os.listdir(self.path.parent)
            except (OSError, AssertionError) as error:
                self.errors.append(repr(error))
            self.longest = max(self.longest, time.monotonic() - began)
            self.rounds += 1

    def stop(self):
        self.stop_now = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        assert self.errors == []
        assert self.rounds > 0


def test_the_same_mount_again_is_success_and_another_is_refused(volumes):
    volume = volumes("v", "exclusive", "group=1000")
    volume.mount()
    other = volume.keeper.ask("mount", "v", volume.data, volume.path, "exclusive", "group=1001", check=False)
    assert other.stderr.startswith("EXISTS")
    assert volume.status()["state"] == "serving"


def test_bad_words_are_errors_and_the_keeper_lives(volumes, tmp_path):
    volume = volumes("v")
    keeper = volume.keeper
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for words, code in (
        (("mount", "x" * 64, volume.data, volume.path), "INVALID"),
        (("mount", "x", "relative", volume.path), "INVALID"),
        (("mount", "x", tmp_path / "nowhere", elsewhere), "NOT_FOUND"),
        (("mount", "x", tmp_path, tmp_path), "INVALID"),
        (("mount", "x", elsewhere, volume.path), "BUSY"),
        (("mount", "x", volume.path / "below", elsewhere), "BUSY"),
        (("mount", "x", volume.data, tmp_path / "nowhere"), "NOT_FOUND"),
        (("status", "x"), "NOT_FOUND"),
    ):
        done = keeper.ask(*words, check=False)
        assert done.returncode == 1 and done.stderr.startswith(code), done.stderr
    assert volume.status()["state"] == "serving"


def test_garbage_on_the_socket_is_refused_and_harms_no_mount(volumes):
    import random

    volume = volumes("v")
    chance = random.Random(4)
    for size in (1, 15, 16, 80, 88, 3000, 65536):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(volume.keeper.socket)
            client.send(chance.randbytes(size))
            client.settimeout(5)
            client.recv(4096)
    assert volume.status()["state"] == "serving"


def test_unmounting_ends_though_a_file_is_open_and_its_user_is_cut_off(volumes):
    volume = volumes("v")
    (volume.data / "file").write_text("x")
    with open(volume.path / "file", encoding="utf-8") as file:
        volume.unmount(timeout_ms=300)
        assert not mounted_at(volume.path)
        with pytest.raises(OSError):
            os.fstat(file.fileno())
            file.read()
            os.listdir(f"/proc/self/fd/{file.fileno()}/..")
    assert volume.keeper.ask("status", "v", check=False).stderr.startswith("NOT_FOUND")


def test_unmounting_a_busy_mount_reads_the_table_of_mounts_few_times(volumes):
    volume = volumes("v")
    (volume.data / "file").write_text("x")

    def bytes_read():
        return int(Path(f"/proc/{volume.keeper.process.pid}/io").read_text().split()[1])

    before = bytes_read()
    with open(volume.path / "file", encoding="utf-8"):
        volume.unmount(timeout_ms=3000)
    tables = (bytes_read() - before) / len(Path("/proc/self/mountinfo").read_text())
    assert 1 < tables < 20, f"{tables:.0f} reads of the table; an attempt each 20 ms makes 150"


def test_after_unmounting_the_disk_below_can_be_taken_apart(tmp_path, volumes, mirrors):
    keeper = volumes("other").keeper
    mirror = mirrors(keeper)
    mirror.wait_for(1)
    disk = Disk(tmp_path / "disk", "64M")
    volume = mounts.Volume(keeper, disk, tmp_path, "v", "must")
    mirror.wait_for(2)
    with open(volume.path / "held", "w+b") as file:
        file.write(b"x")
        os.unlink(volume.path / "held")
    volume.unmount()
    disk.unmount()
    mirror.wait_for(1)


def test_an_unmount_by_hand_ends_the_process_and_is_noticed(volumes):
    volume = volumes("v")
    pid = volume.keeper.pid("v")
    subprocess.run(["umount", volume.path], check=True)
    mounts.wait_for("the process to end", lambda: not os.path.exists(f"/proc/{pid}"))
    mounts.wait_for("the volume to go", lambda: volume.keeper.ask("status", "v", check=False).returncode == 1)


@pytest.fixture
def covers():
    """Mounts another file system at a path: a file in it."""
    made = []

    def cover(path):
        subprocess.run(["mount", "-t", "tmpfs", "another", path], check=True)
        made.append(path)
        (path / "theirs").write_text("theirs")
        return path / "theirs"

    yield cover
    for path in made:
        subprocess.run(["umount", path], check=False)


def test_a_mount_over_the_volume_stays_when_the_volume_is_unmounted(volumes, covers):
    volume = volumes("v")
    theirs = covers(volume.path)
    volume.unmount(timeout_ms=300)
    assert theirs.read_text() == "theirs"
    assert volume.keeper.ask("status", "v", check=False).stderr.startswith("NOT_FOUND")


def test_a_mount_in_place_of_the_volume_stays(volumes, covers):
    volume = volumes("v")
    with open(volume.path / "file", "w"):  # keeps the session, so that the keeper does not see its end
        subprocess.run(["umount", "-l", volume.path], check=True)
        theirs = covers(volume.path)
        volume.unmount(timeout_ms=300)
        assert theirs.read_text() == "theirs"


def test_a_dead_mount_of_another_program_is_not_replaced(volumes, covers, tmp_path):
    volume = volumes("v")
    volume.unmount()
    with open("/dev/fuse", "rb+", buffering=0) as device:
        subprocess.run(["mount", "-i", "-t", "fuse.another", "-o", f"fd={device.fileno()},rootmode=40000,user_id=0,group_id=0",
                        "another", volume.path], check=True, pass_fds=[device.fileno()])
    try:
        done = volume.keeper.ask("mount", "v", volume.data, volume.path, check=False)
        assert done.returncode == 1 and "not connected" in done.stderr, done.stderr
        assert mounted_at(volume.path)
    finally:
        subprocess.run(["umount", volume.path], check=True)


def test_a_killed_keeper_gets_everything_back_from_the_mirror(volumes, mirrors):
    volume = volumes("v", "exclusive", "must")
    keeper = volume.keeper
    mirror = mirrors(keeper)
    content = os.urandom(200_000)
    (volume.path / "file").write_bytes(content)
    mirror.wait_for(1)
    reader = Reader(volume.path / "file", content)
    with open(volume.path / "nameless", "w+b") as file:
        file.write(b"still here")
        file.flush()
        os.unlink(volume.path / "nameless")
        for _ in range(5):
            keeper.process.kill()
            keeper.process.wait()
            time.sleep(0.05)
            keeper.start()
            mirror.wait_for(1)
            os.mkdir(volume.path / "folder")
            os.rmdir(volume.path / "folder")
            assert os.fstat(file.fileno()).st_nlink == 0
        file.seek(0)
        assert file.read() == b"still here"
    reader.stop()
    assert volume.status()["state"] == "serving"


def test_a_killed_mirror_is_filled_again_and_serves_the_next_keeper(volumes, mirrors):
    volume = volumes("v", "exclusive", "must")
    first = mirrors(volume.keeper)
    first.wait_for(1)
    first.kill()
    second = mirrors(volume.keeper)
    second.wait_for(1)
    volume.keeper.process.kill()
    volume.keeper.process.wait()
    volume.keeper.start()
    second.wait_for(1)
    (volume.path / "file").write_text("alive")
    assert (volume.data / "file").read_text() == "alive"


def test_nameless_files_without_passthrough_survive_each_keeper_through_the_mirror(volumes, mirrors):
    volume = volumes("v", "exclusive", "plain")
    mirror = mirrors(volume.keeper)
    mirror.wait_for(1)
    (volume.path / "nameless").write_text("")  # the kernel learns that closing asks us nothing: we start a keeper below
    with open(volume.path / "nameless", "w+b") as file:
        file.write(b"still here")
        file.flush()
        os.unlink(volume.path / "nameless")
        mirror.wait_for_descriptor_of("/nameless (deleted)")
        for n in range(1, 4):
            volume.keeper.process.kill()
            volume.keeper.process.wait()
            volume.keeper.start()
            mirror.wait_for(1)
            file.write(b" and there")
            file.flush()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # from below, not from the cache
            file.seek(0)
            assert file.read() == b"still here" + n * b" and there"


def test_a_newer_keeper_takes_over_and_the_older_ends(volumes):
    volume = volumes("v", "exclusive", "must")
    keeper = volume.keeper
    content = os.urandom(100_000)
    (volume.path / "file").write_bytes(content)
    reader = Reader(volume.path / "file", content)
    for _ in range(5):
        older = keeper.process
        keeper.start()
        assert older.wait(60) == 0
        os.mkdir(volume.path / "folder")
        os.rmdir(volume.path / "folder")
    reader.stop()
    assert reader.longest < 60
    assert volume.status()["state"] == "serving"


def test_label_of_a_mount_is_known_after_a_take_over(volumes, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", str(mounts.BUILD / "tests/libselinux_kernel.so"))
    monkeypatch.setenv("CISTERN_CONTEXTS", str(tmp_path / "contexts"))
    volume = volumes("v", "exclusive", "context=u:r:t:s0:c1,c2")
    assert (tmp_path / "contexts").read_text() == "v u:r:t:s0:c1,c2\n"
    for _ in range(2):
        volume.mount()
        for other in ([], ["context=u:r:t:s0:c1,c3"]):
            done = volume.keeper.ask("mount", "v", volume.data, volume.path, "exclusive", *other, check=False)
            assert done.stderr.startswith("EXISTS"), other
        older = volume.keeper.process
        volume.keeper.start()
        assert older.wait(60) == 0
    mounts.wait_for("a mount process that serves", lambda: volume.status()["state"] == "serving")


def test_mount_process_whose_keeper_died_before_it_began_does_not_serve(disk, tmp_path, mirrors):
    """Its socket has all that it needs, and no other process would end it."""
    held, pid, program = tmp_path / "held", tmp_path / "pid", tmp_path / "program"
    program.write_text(f"#!/bin/sh\nif [ -e {held} ]; then echo $$ > {pid}.new; mv {pid}.new {pid}; fi\n"
                       f'while [ -e {held} ]; do sleep 0.05; done\nexec {mounts.MOUNT_PROCESS} "$@"\n')
    program.chmod(0o755)
    keeper = mounts.Keeper(tmp_path, program=program)
    try:
        volume = mounts.Volume(keeper, disk, tmp_path, "v")
        mirrors(keeper).wait_for(1)
        held.touch()
        volume.kill()
        mounts.wait_for("the next process", pid.exists)
        keeper.process.kill()
        keeper.process.wait()
        held.unlink()
        orphan = Path(f"/proc/{pid.read_text().strip()}")
        mounts.wait_for("the end of the orphan", lambda: not orphan.exists() or "State:\tZ" in (orphan / "status").read_text())
        keeper.start()
        (volume.path / "file").write_text("x")
        volume.unmount()
    finally:
        held.unlink(missing_ok=True)
        keeper.stop()


def test_keeper_without_descriptors_hangs_up_and_answers_once_it_has_some(volumes):
    volume = volumes("v")
    keeper, pid = volume.keeper, volume.keeper.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(p.name) for p in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, limits)
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(highest + 8)]
        for client in clients:
            client.connect(keeper.socket)
        mounts.wait_for("the keeper to hang up", lambda: select.select(clients, [], [], 0)[0])
        assert not select.select(clients, [], [], 0)[0][0].recv(1)
        (volume.path / "file").write_text("x")
    assert volume.status()["state"] == "serving"


def test_probe_succeeds_while_the_keeper_answers_and_names_one_that_does_not(volumes):
    keeper = volumes("v").keeper

    def probe():
        return subprocess.run([mounts.KEEPER, "--probe", "--socket", keeper.socket], capture_output=True, text=True, timeout=120, check=False)

    assert probe().returncode == 0
    keeper.process.send_signal(signal.SIGSTOP)
    try:
        done = probe()
    finally:
        keeper.process.send_signal(signal.SIGCONT)
    assert done.returncode == 10 and "the keeper does not answer" in done.stderr and "CIS3101" in done.stderr, done.stderr
    assert probe().returncode == 0
    assert keeper.status("v")["state"] == "serving"


def test_calls_to_a_frozen_keeper_with_a_full_queue_end_with_the_cause(volumes):
    keeper = volumes("v").keeper
    keeper.process.send_signal(signal.SIGSTOP)
    with contextlib.ExitStack() as stack:
        stack.callback(keeper.process.send_signal, signal.SIGCONT)
        is_full = False
        while not is_full:
            client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            client.setblocking(False)
            is_full = client.connect_ex(keeper.socket) == errno.EAGAIN
        done = keeper.ask("status", "v", check=False)
        assert done.returncode == 1 and "cannot reach the keeper" in done.stderr, done.stderr
    assert keeper.status("v")["state"] == "serving"


def test_without_a_mirror_a_killed_keeper_loses_the_mount_and_the_next_mount_replaces_it(volumes):
    volume = volumes("v")
    volume.keeper.process.kill()
    volume.keeper.process.wait()
    with pytest.raises(OSError):
        mounts.wait_for("the end of the mount", lambda: os.listdir(volume.path) is None)
    volume.keeper.start()
    volume.mount()
    assert os.listdir(volume.path) == []


@pytest.fixture
def breakable(disk, tmp_path):
    """A keeper whose mount processes fail while the file `broken` is there; its volumes; `broken`."""
    broken, program = tmp_path / "broken", tmp_path / "program"
    program.write_text(f'#!/bin/sh\n[ -e {broken} ] && exit 1\nexec {mounts.MOUNT_PROCESS} "$@"\n')
    program.chmod(0o755)
    keeper = mounts.Keeper(tmp_path, program=program)
    made = [mounts.Volume(keeper, disk, tmp_path, name) for name in ("given-up", "other")]
    yield keeper, made, broken
    broken.unlink(missing_ok=True)
    for volume in made:
        keeper.ask("unmount", volume.name, 0, check=False)
        subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", volume.data], check=True)
    keeper.stop()


def test_mount_whose_processes_always_fail_is_aborted_and_its_callers_return(breakable, mirrors):
    keeper, (volume, other), broken = breakable
    mirrors(keeper).wait_for(2)
    (volume.path / "file").write_text("x")
    broken.touch()
    volume.kill()
    caller = subprocess.Popen(["ls", volume.path / "file", volume.path / "absent"], stderr=subprocess.PIPE, text=True)
    try:
        _, error = caller.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        pytest.fail("the caller still waits")
    finally:
        caller.kill()
    assert caller.returncode != 0 and ("not connected" in error or "abort" in error), error
    assert "mount given up" in keeper.log.read_text()
    mounts.wait_for("the keeper to forget it", lambda: "NOT_FOUND" in keeper.ask("status", "given-up", check=False).stderr)
    assert mounted_at(volume.path), "the dead mount is what the driver finds"
    assert os.listdir(other.path) == []
    broken.unlink()
    volume.mount()
    assert (volume.path / "file").read_text() == "x"


def test_mount_without_a_process_is_unmounted_at_once_though_a_caller_waits(breakable):
    keeper, (volume, other), broken = breakable
    broken.touch()
    volume.kill()
    caller = subprocess.Popen(["stat", volume.path / "absent"], stderr=subprocess.DEVNULL)
    mounts.wait_for("a failure", lambda: "exit status 1" in keeper.log.read_text())
    began = time.monotonic()
    volume.unmount(0)
    assert caller.wait(30) != 0
    assert time.monotonic() - began < 30
    assert os.listdir(other.path) == []


def test_a_killed_mount_process_is_restarted_without_limit(volumes):
    volume = volumes("v", "exclusive")
    for _ in range(12):
        volume.kill()
    (volume.path / "file").write_text("x")
    assert int(volume.status()["restarts"]) == 12


def test_sigterm_ends_the_keeper_and_its_processes_when_a_driver_holds_the_mounts(volumes):
    volume = volumes("v")
    (volume.path / "file").write_text("words")
    pid, keeper = volume.keeper.pid("v"), volume.keeper
    keeper.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        keeper.process.wait(1)
    with subprocess.Popen([mounts.CLIENT, keeper.socket, "mirror"], stdin=subprocess.PIPE) as driver:
        assert keeper.process.wait(10) == 0
        mounts.wait_for("the mount process to end", lambda: not os.path.exists(f"/proc/{pid}"))
        keeper.start()
        assert (volume.path / "file").read_text() == "words"
        driver.stdin.close()


def test_a_second_sigterm_ends_the_keeper_at_once(volumes):
    keeper = volumes("v").keeper
    keeper.process.send_signal(signal.SIGTERM)
    status = Path(f"/proc/{keeper.process.pid}/status")
    mounts.wait_for("the keeper to read the first", lambda: "ShdPnd:\t0000000000000000" in status.read_text())
    keeper.process.send_signal(signal.SIGTERM)
    assert keeper.process.wait(10) == 0


def memory_kib(pid, field):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


def test_keeper_and_mount_process_stay_below_8_mib(disk, tmp_path):
    keeper = mounts.Keeper(tmp_path, program=mounts.BUILD / "bin/cistern-mount")
    volume = mounts.Volume(keeper, disk, tmp_path, "small", "exclusive", "must")
    for i in range(2000):
        (volume.path / f"file-{i}").write_bytes(b"x" * 1000)
    for i in range(2000):
        assert len((volume.path / f"file-{i}").read_bytes()) == 1000
    subprocess.run(["find", volume.path, "-size", "+0"], stdout=subprocess.DEVNULL, check=True)
    peaks = memory_kib(keeper.process.pid, "VmHWM"), memory_kib(keeper.pid("small"), "VmHWM")
    volume.unmount()
    subprocess.run(["rm", "-rf", volume.data], check=True)
    keeper.stop()
    assert peaks[0] < 8192 and peaks[1] < 8192, peaks
