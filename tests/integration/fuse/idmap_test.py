# SPDX-License-Identifier: Apache-2.0
"""A mount that the container runtime maps to other ids, as it does for a pod with `hostUsers: false`."""

import ctypes
import errno
import os
import signal
import stat
import subprocess

import pytest

from .mounts import as_user, libc

AT_EMPTY_PATH, AT_RECURSIVE, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 0x1000, 0x8000, 1, 4
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
MOUNT_ATTR_IDMAP = 0x100000
FIRST, COUNT = 100_000, 65_536  # of the pod's user namespace
USER, GROUP = 1000, 2000


def checked_result(result, what):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)
    return result


class MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def user_namespace():
    """A process in it, which sleeps."""
    child = subprocess.Popen(["unshare", "--user", "sleep", "infinity"])
    while os.readlink(f"/proc/{child.pid}/ns/user") == os.readlink("/proc/self/ns/user"):
        assert child.poll() is None
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{child.pid}/{name}", "w") as f:
            f.write(f"0 {FIRST} {COUNT}")
    return child


def mount_mapped(source, target, userns_pid):
    """A bind mount of `source` with the ids of that namespace: what runc makes of a volume."""
    tree = checked_result(libc.syscall(OPEN_TREE, -100, os.fsencode(source), OPEN_TREE_CLONE | os.O_CLOEXEC), "open_tree")
    with open(f"/proc/{userns_pid}/ns/user") as userns:
        attr = MountAttr(set=MOUNT_ATTR_IDMAP, userns=userns.fileno())
        checked_result(libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attr), ctypes.sizeof(attr)), "mount_setattr")
    checked_result(libc.syscall(MOVE_MOUNT, tree, b"", -100, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH), "move_mount")
    os.close(tree)


@pytest.fixture(params=[["must"], ["must", "group=3000"], ["plain"]], ids=["own groups", "fsGroup", "without passthrough"])
def mapped(request, volumes):
    """A volume, and the path where a pod in a user namespace has it."""
    volume = volumes("mapped", "exclusive", "allow-other", *request.param)
    os.chmod(volume.data, 0o777)
    child = user_namespace()
    pod = volume.path.parent / "pod"
    pod.mkdir()
    mount_mapped(volume.path, pod, child.pid)
    yield volume, pod, "group=3000" in request.param
    subprocess.run(["umount", pod], check=True)
    child.send_signal(signal.SIGKILL)
    child.wait()


def make_all(pod):
    (pod / "file").write_text("data")
    (pod / "folder").mkdir()
    (pod / "link").symlink_to("file")
    os.mkfifo(pod / "fifo")
    os.link(pod / "file", pod / "second")
    os.rename(pod / "fifo", pod / "renamed")


def test_new_files_of_a_pod_belong_to_its_ids_on_disk(mapped):
    volume, pod, has_group = mapped
    assert as_user(FIRST + USER, lambda: make_all(pod), FIRST + GROUP) == 0
    for name in ("file", "folder", "link", "second", "renamed"):
        below = os.lstat(volume.data / name)
        assert (below.st_uid, below.st_gid) == (USER, 3000 if has_group else GROUP), name
        assert os.lstat(pod / name).st_uid == FIRST + USER
        assert os.lstat(volume.path / name).st_uid == USER
    assert (volume.data / "file").read_text() == "data"


def test_a_pod_reads_back_the_owners_that_are_on_disk(mapped):
    volume, pod, has_group = mapped
    (volume.data / "filled").write_text("from the bucket")
    os.chown(volume.data / "filled", USER, GROUP)
    os.chmod(volume.data / "filled", 0o640)
    seen = os.stat(pod / "filled")
    assert (seen.st_uid, seen.st_gid) == (FIRST + USER, FIRST + (3000 if has_group else GROUP))
    assert as_user(FIRST + USER, lambda: (pod / "filled").read_text()) == 0
    assert as_user(FIRST + 7, lambda: (pod / "filled").read_text(), seen.st_gid) == 0
    assert as_user(FIRST + 7, lambda: (pod / "filled").read_text()) == errno.EACCES


def test_a_pod_s_root_changes_owners_within_the_pod_s_ids(mapped):
    volume, pod, _ = mapped
    assert as_user(FIRST, lambda: (pod / "mine").write_text("x")) == 0
    os.chown(pod / "mine", FIRST + USER, FIRST + GROUP)
    below = os.stat(volume.data / "mine")
    assert (below.st_uid, below.st_gid) == (USER, GROUP)
    os.chmod(pod / "mine", 0o600)
    assert stat.S_IMODE(os.stat(volume.data / "mine").st_mode) == 0o600


def test_an_acl_of_a_pod_names_the_pod_s_ids_on_disk(mapped):
    """setfacl(1) of the pod writes its own ids, which the kernel maps with the mount."""
    volume, pod, _ = mapped

    def share():
        (pod / "shared").write_text("words")
        os.chmod(pod / "shared", 0o600)
        subprocess.run(["setfacl", "-m", f"u:{FIRST + 7}:r", pod / "shared"], check=True)

    assert as_user(FIRST + USER, share, FIRST + GROUP) == 0
    assert "user:7:r--\n" in acl_of(volume.data / "shared") and f"user:{FIRST + 7}:r--\n" in acl_of(pod / "shared")
    assert as_user(FIRST + 7, lambda: (pod / "shared").read_text()) == 0
    assert as_user(FIRST + 8, lambda: (pod / "shared").read_text()) == errno.EACCES


def acl_of(path):
    return subprocess.run(["getfacl", "-n", "-p", path], check=True, capture_output=True, text=True).stdout


def test_a_user_whom_the_pod_does_not_have_makes_nothing(mapped):
    volume, pod, _ = mapped
    assert as_user(5, lambda: (pod / "foreign").write_text("x")) == errno.EOVERFLOW
    assert not (volume.data / "foreign").exists()


def test_the_mapped_mount_survives_the_death_of_its_mount_process(mapped):
    volume, pod, _ = mapped
    assert as_user(FIRST + USER, lambda: (pod / "before").write_text("x"), FIRST + GROUP) == 0
    volume.kill()
    assert as_user(FIRST + USER, lambda: (pod / "after").write_text("x"), FIRST + GROUP) == 0
    assert os.stat(volume.data / "after").st_uid == USER
    assert (pod / "before").read_text() == "x"
