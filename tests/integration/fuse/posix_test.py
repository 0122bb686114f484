# SPDX-License-Identifier: Apache-2.0
"""A mount behaves as the disk below it: two suites of others, and what they do not ask."""

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from integration.lib import suites
from integration.lib.disk import Disk

from . import mounts

WAYS = ("must", "plain")


@pytest.fixture(params=WAYS)
def volume(volumes, request):
    made = volumes("v", "exclusive", "allow-other", request.param)
    os.chmod(made.path, 0o777)
    return made


@pytest.fixture(scope="session")
def below(disk, tmp_path_factory):
    """The outcomes of pjdfstest on the disk."""
    folder = disk.path / "native"
    folder.mkdir()
    found = suites.pjdfstest(folder, tmp_path_factory.mktemp("below"))
    subprocess.run(["rm", "-rf", folder], check=True)
    return found


def test_pjdfstest_passes_where_it_passes_on_the_disk_below(volume, below, tmp_path):
    mounted = suites.pjdfstest(volume.path, tmp_path)
    different = suites.different(below, mounted)
    # The C library guesses LINK_MAX from a file system's magic number, and knows none for FUSE.
    different.pop("link::link_count_max", None)
    assert different == {}
    assert list(mounted.values()).count("ok") >= 380


@pytest.mark.timeout(suites.FSX_SECONDS + 30)
@pytest.mark.parametrize("seed", [1, 2])
def test_fsx_finds_nothing(volume, tmp_path, seed):
    assert suites.COMPLETE in suites.fsx(volume.path / "fsx", tmp_path, seed)


def test_a_shared_mapping_and_reads_see_each_other(volume):
    with open(volume.path / "f", "w+b") as file:
        file.truncate(10000)
        with mmap.mmap(file.fileno(), 10000) as mapping:
            mapping[5000:5005] = b"hello"
            assert os.pread(file.fileno(), 5, 5000) == b"hello"
            os.pwrite(file.fileno(), b"again", 5000)
            assert mapping[5000:5005] == b"again"
    assert (volume.path / "f").read_bytes()[5000:5005] == b"again"


def test_stores_through_a_mapping_whose_file_is_closed_move_the_time_that_users_see(volumes):
    volume = volumes("v", "exclusive", "must")
    path = volume.path / "f"
    path.write_bytes(b"x" * 4096)
    os.utime(path, (1, 1))
    with open(path, "r+b") as file:
        mapping = mmap.mmap(file.fileno(), 4096)
    time.sleep(0.05)
    assert os.stat(path).st_mtime == 1
    mapping[0:1] = b"y"
    assert os.stat(path).st_mtime > 1_000_000
    mapping.close()
    # No mapping can store any more: now the kernel may cache attributes, and its cache is right.
    os.stat(path)
    assert os.stat(path).st_mtime == os.stat(volume.data / "f").st_mtime


def test_direct_io_bypasses_the_page_cache_and_is_right(volume):
    fd = os.open(volume.path / "f", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 8192)
    page[:] = os.urandom(8192)
    assert os.pwritev(fd, [page], 4096) == 8192
    back = mmap.mmap(-1, 8192)
    assert os.preadv(fd, [back], 4096) == 8192
    assert back[:] == page[:]
    os.close(fd)
    assert (volume.data / "f").read_bytes()[4096:] == page[:]


def test_holes_are_found_as_on_the_disk_below(volume):
    fd = os.open(volume.path / "f", os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, b"x" * 4096, 1 << 20)
    os.ftruncate(fd, 3 << 20)
    assert os.lseek(fd, 0, os.SEEK_DATA) == 1 << 20
    assert os.lseek(fd, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 4096
    libc = mounts.libc
    assert libc.fallocate(fd, 3, ctypes.c_long(1 << 20), ctypes.c_long(4096)) == 0  # punch a hole
    with pytest.raises(OSError):
        os.lseek(fd, 0, os.SEEK_DATA)
    os.close(fd)
    assert os.stat(volume.path / "f").st_blocks == 0


def test_copy_file_range_copies_below(volume):
    (volume.path / "from").write_bytes(os.urandom(300_000))
    with open(volume.path / "from", "rb") as source, open(volume.path / "to", "wb") as target:
        left = 300_000
        while left:
            left -= os.copy_file_range(source.fileno(), target.fileno(), left)
    assert (volume.path / "to").read_bytes() == (volume.data / "from").read_bytes()


def test_locks_are_felt_by_other_processes(volume):
    path = volume.path / "f"
    path.write_text("x")
    with open(path, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert subprocess.run(["flock", "-n", path, "true"], check=False).returncode == 1
        fcntl.flock(file, fcntl.LOCK_UN)
        assert subprocess.run(["flock", "-n", path, "true"], check=False).returncode == 0
        fcntl.lockf(file, fcntl.LOCK_EX)
        code = "import fcntl,sys; fcntl.lockf(open(sys.argv[1],'r+'), fcntl.LOCK_EX|fcntl.LOCK_NB)"
        assert subprocess.run(["python3", "-c", code, path], capture_output=True, check=False).returncode == 1


def test_acls_of_the_disk_below_are_kept_and_obeyed(volume):
    path = volume.path / "f"
    path.write_text("secret")
    os.chmod(path, 0o600)
    read = ["setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups", "cat", path]
    assert subprocess.run(read, capture_output=True, check=False).returncode == 1
    subprocess.run(["setfacl", "-m", "u:daemon:r", path], check=True)
    assert subprocess.run(read, capture_output=True, check=True).stdout == b"secret"
    (volume.path / "folder").mkdir()
    subprocess.run(["setfacl", "-d", "-m", "u:daemon:rwx", volume.path / "folder"], check=True)
    os.umask(0o077)
    (volume.path / "folder/child").write_text("x")
    os.umask(0o022)
    shown = subprocess.run(["getfacl", "-c", volume.path / "folder/child"], capture_output=True, text=True, check=True)
    assert "user:daemon:rwx" in shown.stdout


def test_writing_by_a_user_takes_the_set_user_id_bit_away(volume):
    path = volume.path / "program"
    path.write_text("x")
    os.chmod(path, 0o6777)
    as_daemon = ["setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups"]
    subprocess.run([*as_daemon, "sh", "-c", f"echo y >> {path}"], check=True)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o777
    os.chmod(path, 0o6777)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o6777


def test_the_project_id_cannot_be_changed_through_the_mount(volume):
    path = volume.path / "f"
    path.write_text("x")
    with open(path, "rb") as file:
        with pytest.raises(OSError) as refused:
            fcntl.ioctl(file, 0x401C5820, bytes(28))  # FS_IOC_FSSETXATTR
    assert refused.value.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)
    assert subprocess.run(["chattr", "-p", "7", path], capture_output=True, check=False).returncode != 0


def test_the_mount_process_holds_no_cap_sys_resource(volume):
    pid = volume.keeper.pid("v")
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    for field in ("CapEff", "CapPrm"):
        value = int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)), 16)
        assert value & 1 << 24 == 0


def test_a_read_lease_on_the_lower_file_shows_whether_a_process_can_still_write(volumes):
    volume = volumes("v", "exclusive", "must")
    path = volume.path / "f"
    path.write_bytes(b"x" * 4096)

    def can_still_write():
        with open(volume.data / "f", "rb") as below:
            try:
                fcntl.fcntl(below, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                return False
            except BlockingIOError:
                return True

    mounts.wait_for("the writer to be gone", lambda: not can_still_write())
    with open(path, "rb"):
        assert not can_still_write()
    with open(path, "r+b") as file:
        assert can_still_write()
        mapping = mmap.mmap(file.fileno(), 4096)
    assert can_still_write()
    mapping.close()
    mounts.wait_for("the mapping to be gone", lambda: not can_still_write())


def test_df_shows_the_limit_of_the_volume(volumes):
    volume = volumes("v", "capacity=104857600")
    shown = os.statvfs(volume.path)
    assert shown.f_blocks * shown.f_frsize == 104857600
    assert shown.f_bavail * shown.f_frsize <= 104857600


def test_a_full_disk_below_is_enospc_for_the_writer(volumes, tmp_path):
    keeper = volumes("other").keeper
    disk = Disk(tmp_path / "disk", "16M")
    volume = mounts.Volume(keeper, disk, tmp_path, "small", "exclusive", "must")
    with pytest.raises(OSError) as full, open(volume.path / "f", "wb", buffering=0) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    assert full.value.errno == errno.ENOSPC
    os.unlink(volume.path / "f")
    # The kernel reports a close asynchronously: the space is free a moment later.
    mounts.wait_for("room", lambda: os.statvfs(volume.path).f_bavail * os.statvfs(volume.path).f_frsize > 2 << 20)
    (volume.path / "f").write_bytes(bytes(1 << 20))
    volume.unmount()
    disk.unmount()


def test_a_read_only_mount_changes_nothing(volumes):
    volume = volumes("v", "read-only")
    (volume.data / "f").write_text("x")
    assert (volume.path / "f").read_text() == "x"
    for change in (lambda: (volume.path / "f").write_text("y"), lambda: os.mkdir(volume.path / "d")):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS


def test_a_group_is_shown_for_files_that_have_another_and_costs_no_write(volumes):
    volume = volumes("v", "exclusive", "allow-other", "group=4321")
    (volume.data / "tree").mkdir(mode=0o755)
    (volume.data / "tree/file").write_text("x")
    os.chmod(volume.data / "tree/file", 0o640)
    os.chmod(volume.data / "tree", 0o750)
    shown = os.stat(volume.path / "tree/file")
    assert (shown.st_gid, stat.S_IMODE(shown.st_mode)) == (4321, 0o660)
    shown = os.stat(volume.path / "tree")
    assert (shown.st_gid, stat.S_IMODE(shown.st_mode)) == (4321, 0o2770)
    user = ["setpriv", "--reuid=daemon", "--regid=4321", "--clear-groups", "sh", "-c"]
    subprocess.run([*user, f"echo more >> {volume.path}/tree/file && echo new > {volume.path}/tree/new"], check=True)
    assert os.stat(volume.data / "tree/file").st_gid == 0
    assert os.stat(volume.data / "tree/new").st_gid == 4321
    os.chmod(volume.path / "tree/file", 0o600)
    assert stat.S_IMODE(os.stat(volume.path / "tree/file").st_mode) == 0o600, "a mode that a user sets stays"


def owner(path):
    found = os.lstat(path)
    return found.st_uid, found.st_gid


def test_a_group_that_a_user_sets_stays_under_fsgroup(volumes):
    volume = volumes("v", "exclusive", "allow-other", "group=4321")
    made, kept, links = volume.path / "made", volume.path / "kept", volume.path / "link"
    for name in ("made", "viewed", "untouched"):
        (volume.data / name if name != "made" else made).write_text("x")
    (volume.data / "viewed").chmod(0o640)
    links.symlink_to("made")
    kept.mkdir()
    os.chown(made, 5, 6)
    os.chown(volume.path / "viewed", -1, 2000)
    os.chown(links, -1, 2000, follow_symlinks=False)
    os.chown(kept, -1, 2000)
    os.chmod(kept, 0o2775)  # what is made in it has its group
    (kept / "child").mkdir()
    (kept / "child/file").write_text("x")
    os.symlink("file", kept / "link")
    wanted = {"made": (5, 6), "viewed": (0, 2000), "untouched": (0, 4321), "link": (0, 2000), "kept": (0, 2000),
              "kept/child": (0, 2000), "kept/child/file": (0, 2000), "kept/link": (0, 2000)}
    assert {name: owner(volume.path / name) for name in wanted} == wanted
    assert stat.S_IMODE(os.stat(volume.path / "viewed").st_mode) == 0o660, "the mode that it showed"
    assert os.listxattr(kept) == [], "how that is remembered is nobody's business"
    on_disk = wanted | {"untouched": (0, 0)}
    assert {name: owner(volume.data / name) for name in wanted} == on_disk
    volume.unmount()
    volume.mount()
    assert {name: owner(volume.path / name) for name in wanted} == wanted, "for a later pod too"
    os.chown(made, -1, 4321)
    assert owner(made) == (5, 4321)
    user = ["setpriv", "--reuid=5", "--regid=4321", "--clear-groups", "chgrp", "2000", made]
    assert subprocess.run(user, stderr=subprocess.DEVNULL, check=False).returncode != 0, "nobody gives away to a foreign group"


def test_a_group_that_a_user_set_ends_with_a_mount_of_another_group(volumes):
    volume = volumes("v", "exclusive", "allow-other", "group=4321")
    (volume.path / "file").write_text("x")
    os.chown(volume.path / "file", -1, 2000)
    volume.unmount()
    volume.options = ("exclusive", "allow-other", "group=1234")
    volume.mount()
    assert os.stat(volume.path / "file").st_gid == 1234


def test_a_mount_without_a_group_changes_owner_and_group_as_the_disk_does(volume):
    (volume.path / "file").write_text("x")
    os.chown(volume.path / "file", 5, 6)
    assert owner(volume.path / "file") == owner(volume.data / "file") == (5, 6)


def test_opens_of_one_file_by_many_at_once_all_succeed(volume):
    path = volume.path / "f"
    path.write_bytes(b"x" * 100)
    errors = []

    def opener(flags):
        for _ in range(200):
            try:
                fd = os.open(path, flags)
                assert os.pread(fd, 100, 0) == b"x" * 100
                os.close(fd)
            except OSError as error:
                errors.append(error)

    threads = [threading.Thread(target=opener, args=(flags,)) for flags in (os.O_RDONLY, os.O_RDWR) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_large_directory_is_listed_whole_and_removed(volume):
    for i in range(3000):
        (volume.data / f"file-with-a-longer-name-{i}").touch()
    assert len(os.listdir(volume.path)) == 3000
    assert sum(1 for entry in os.scandir(volume.path) if entry.stat().st_size == 0) == 3000
    subprocess.run(["rm", "-r", *volume.path.iterdir()], check=True)
    assert os.listdir(volume.data) == []
