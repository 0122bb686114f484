# SPDX-License-Identifier: Apache-2.0
"""Features of file systems, mounted against the disk below: each difference has its row in docs/design/004-mounts.md."""

import array
import ctypes
import errno
import fcntl
import mmap
import os
import re
import select
import signal
import socket
import stat
import struct
import subprocess

import pytest

from paths import TOP

from . import mounts
from .mounts import RENAME_EXCHANGE, RENAME_NOREPLACE, libc, name_open_file, renameat2

PAGE = TOP / "docs/design/004-mounts.md"
RENAME_WHITEOUT = 4
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
FICLONE, GETFLAGS, SETFLAGS, FSGETXATTR, FSSETXATTR = 0x40049409, 0x80086601, 0x40086602, 0x801C581F, 0x401C5820
FIEMAP, FIGETBSZ, GETVERSION = 0xC020660B, 2, 0x80087601
STATX_BTIME, STATX_DIOALIGN = 0x800, 0x2000
BLOCK = 4096


def checked(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def opened(path, flags=os.O_RDWR | os.O_CREAT, data=b""):
    fd = os.open(path, flags, 0o644)
    if data:
        os.write(fd, data)
    return fd


def file_of(folder, blocks=4):
    return opened(folder / "file", data=bytes([1]) * BLOCK * blocks)


def fallocate(folder, mode, offset, length):
    fd = file_of(folder)
    checked(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))
    return os.fstat(fd).st_size, hash(os.pread(fd, BLOCK * 8, 0))


def statx(folder, mask):
    os.close(file_of(folder))
    buffer = (ctypes.c_uint8 * 256)()
    checked(libc.statx(-100, os.fsencode(folder / "file"), 0, mask, buffer))
    return bool(struct.unpack_from("I", buffer)[0] & mask)


def ficlone(folder):
    source = file_of(folder)
    fcntl.ioctl(opened(folder / "clone"), FICLONE, source)


def copy_range(folder):
    target = opened(folder / "copy")
    n = os.copy_file_range(file_of(folder), target, BLOCK * 4)
    return n, os.pread(target, BLOCK * 4, 0) == bytes([1]) * BLOCK * 4


def seek_hole(folder):
    fd = opened(folder / "sparse")
    os.pwrite(fd, b"x" * BLOCK, BLOCK * 64)
    return os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, BLOCK * 64, os.SEEK_HOLE)


def ioctl_int(folder, number, value=0):
    fd = file_of(folder)
    buffer = array.array("i", [value, 0])
    fcntl.ioctl(fd, number, buffer)
    return buffer[0] != -1


def set_flags(folder):
    fd = file_of(folder)
    buffer = array.array("L", [0])
    fcntl.ioctl(fd, GETFLAGS, buffer)
    buffer[0] |= 0x80  # no access times
    fcntl.ioctl(fd, SETFLAGS, buffer)


def set_immutable(folder):
    fd = file_of(folder)
    buffer = array.array("L", [0x10])
    fcntl.ioctl(fd, SETFLAGS, buffer)


def fs_xattr(folder):
    fcntl.ioctl(file_of(folder), FSGETXATTR, bytearray(28))


def fiemap(folder):
    fd = file_of(folder)
    os.fsync(fd)
    fcntl.ioctl(fd, FIEMAP, bytearray(struct.pack("QQIIII", 0, 1 << 62, 0, 0, 0, 0)))


def handle(folder):
    os.close(file_of(folder))
    buffer = (ctypes.c_uint32 * 40)(128)
    mount_id = ctypes.c_int()
    checked(libc.name_to_handle_at(-100, os.fsencode(folder / "file"), buffer, ctypes.byref(mount_id), 0))
    root = os.open(folder, os.O_RDONLY)
    return os.read(checked(libc.open_by_handle_at(root, buffer, os.O_RDONLY)), 1)


def direct_io(folder):
    os.close(file_of(folder))
    memory = mmap.mmap(-1, BLOCK)
    fd = os.open(folder / "file", os.O_RDWR | os.O_DIRECT)
    return os.preadv(fd, [memory], 0), os.pwritev(fd, [memory], 0)


def tmpfile(folder):
    fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"x")
    name_open_file(fd, folder / "named")
    return os.stat(folder / "named").st_size


def lease(folder):
    os.close(file_of(folder))
    fd = os.open(folder / "file", os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def locks(folder, call):
    first, second = file_of(folder), os.open(folder / "file", os.O_RDWR)
    call(first)
    try:
        call(second)
    except OSError as e:
        return e.errno
    return 0


def flock(fd):
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def ofd_lock(fd):
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 10, 0))


def inotify(folder):
    watcher = checked(libc.inotify_init1(os.O_NONBLOCK))
    checked(libc.inotify_add_watch(watcher, os.fsencode(folder), 0x100 | 0x8))  # create, close after writing
    os.close(file_of(folder))
    return len(os.read(watcher, 4096))


def dnotify(folder):
    fd = os.open(folder, os.O_RDONLY)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(fd, fcntl.F_NOTIFY, fcntl.DN_CREATE)


def xattr(folder, name):
    os.close(file_of(folder))
    os.setxattr(folder / "file", name, b"value")
    shown = name in os.listxattr(folder / "file")
    value = os.getxattr(folder / "file", name)
    os.removexattr(folder / "file", name)
    return shown, value


def acl(folder):
    os.close(file_of(folder))
    subprocess.run(["setfacl", "-m", "u:12345:r", folder / "file"], check=True, capture_output=True)
    return b"12345" in subprocess.run(["getfacl", "-cp", folder / "file"], check=True, capture_output=True).stdout


def shared_mapping(folder):
    fd = file_of(folder)
    with mmap.mmap(fd, BLOCK) as one, mmap.mmap(os.open(folder / "file", os.O_RDWR), BLOCK) as two:
        one[5] = 77
        one.flush()
        return two[5], os.pread(fd, 6, 0)[5]


def executable(folder):
    (folder / "program").write_bytes(open("/bin/true", "rb").read())
    os.chmod(folder / "program", 0o755)
    return subprocess.run([folder / "program"], check=False).returncode


def rename(folder, flags, target=True):
    os.close(file_of(folder))
    if target:
        (folder / "target").write_text("t")
    renameat2(folder / "file", folder / "target", flags)
    return sorted((p.name, p.lstat().st_size) for p in folder.iterdir() if not stat.S_ISCHR(p.lstat().st_mode))


def device(folder):
    os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return stat.S_ISCHR(os.stat(folder / "null").st_mode)


def unix_socket(folder):
    os.chdir(folder)
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    server.listen()
    socket.socket(socket.AF_UNIX).connect("socket")
    os.chdir("/")


def fifo(folder):
    os.mkfifo(folder / "fifo")
    reader = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    os.write(os.open(folder / "fifo", os.O_WRONLY), b"x")
    return os.read(reader, 1)


def unlinked(folder):
    fd = file_of(folder)
    os.unlink(folder / "file")
    os.ftruncate(fd, 100)
    return os.fstat(fd).st_nlink, os.fstat(fd).st_size, os.pread(fd, 1, 0)


def times(folder):
    os.close(file_of(folder))
    os.utime(folder / "file", ns=(1_234_567_890_123_456_789, 1_334_567_890_987_654_321))
    seen = os.stat(folder / "file")
    return seen.st_atime_ns, seen.st_mtime_ns


def seen_blocks(folder):
    fd = file_of(folder)
    os.fsync(fd)
    return os.stat(folder / "file").st_blocks


def sticky(folder):
    os.chmod(folder, 0o3777)
    os.close(file_of(folder))
    return oct(os.stat(folder).st_mode), os.stat(folder / "file").st_gid == os.stat(folder).st_gid


def suid_after_write(folder):
    fd = file_of(folder)
    os.fchmod(fd, 0o6755)
    child = os.fork()
    if child == 0:
        os.setresuid(1, 1, 1)
        os._exit(0 if os.write(fd, b"x") == 1 else 1)
    os.waitpid(child, 0)
    return oct(os.fstat(fd).st_mode)


def long_name(folder):
    (folder / ("n" * 255)).write_text("")
    (folder / ("n" * 256)).write_text("")


def overlay(folder):
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir()
    (folder / "lower/file").write_text("below")
    options = ",".join(f"{n}dir={folder / n}" for n in ("lower", "upper", "work"))
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, folder / "merged"], check=True, capture_output=True)
    try:
        (folder / "merged/file").unlink()
        return (folder / "merged/file").exists()
    finally:
        subprocess.run(["umount", folder / "merged"], check=True)


def loop_image(folder):
    with open(folder / "image", "wb") as f:
        f.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", folder / "image"], check=True)
    (folder / "mounted").mkdir()
    subprocess.run(["mount", "-o", "loop", folder / "image", folder / "mounted"], check=True)
    subprocess.run(["umount", folder / "mounted"], check=True)


def swap(folder):
    with open(folder / "swap", "wb") as f:
        f.write(bytes(1 << 20))
    os.chmod(folder / "swap", 0o600)
    subprocess.run(["mkswap", folder / "swap"], check=True, capture_output=True)
    checked(libc.swapon(os.fsencode(folder / "swap"), 0))
    checked(libc.swapoff(os.fsencode(folder / "swap")))


def poll_file(folder):
    poller = select.poll()
    poller.register(file_of(folder), select.POLLIN | select.POLLOUT)
    return poller.poll(0)[0][1]


def mapped_time(folder):
    fd = file_of(folder)
    os.utime(folder / "file", (1, 1))
    with mmap.mmap(fd, BLOCK) as memory:
        memory[0] = 7
    os.close(fd)
    return os.stat(folder / "file").st_mtime > 1


def dir_time(folder):
    (folder / "sub").mkdir()
    os.utime(folder / "sub", (1, 1))
    before = os.stat(folder / "sub").st_mtime
    (folder / "sub/x").write_text("")
    return before, os.stat(folder / "sub").st_mtime > 1, os.stat(folder / "sub").st_nlink


FEATURES = {
    "statx: time of birth": lambda f: statx(f, STATX_BTIME),
    "statx: alignment for direct I/O": lambda f: statx(f, STATX_DIOALIGN),
    "reflink (FICLONE)": ficlone,
    "copy_file_range": copy_range,
    "sparse files, SEEK_HOLE": seek_hole,
    "fallocate": lambda f: fallocate(f, 0, BLOCK * 2, BLOCK * 8),
    "fallocate: keep the size": lambda f: fallocate(f, KEEP_SIZE, BLOCK * 4, BLOCK),
    "fallocate: punch a hole": lambda f: fallocate(f, PUNCH_HOLE | KEEP_SIZE, BLOCK, BLOCK),
    "fallocate: zero a range": lambda f: fallocate(f, ZERO, BLOCK, BLOCK),
    "fallocate: collapse a range": lambda f: fallocate(f, COLLAPSE, BLOCK, BLOCK),
    "fallocate: insert a range": lambda f: fallocate(f, INSERT, BLOCK, BLOCK),
    "fallocate: unshare a range": lambda f: fallocate(f, UNSHARE, 0, BLOCK),
    "chattr": set_flags,
    "lsattr -p (FS_IOC_FSGETXATTR)": fs_xattr,
    "extents (FIEMAP)": fiemap,
    "FIGETBSZ": lambda f: ioctl_int(f, FIGETBSZ),
    "FS_IOC_GETVERSION": lambda f: ioctl_int(f, GETVERSION),
    "file handles": handle,
    "O_DIRECT": direct_io,
    "O_TMPFILE and linkat": tmpfile,
    "leases": lease,
    "flock": lambda f: locks(f, flock),
    "POSIX locks of descriptions": lambda f: locks(f, ofd_lock),
    "inotify": inotify,
    "F_NOTIFY": dnotify,
    "user.* attributes": lambda f: xattr(f, "user.name"),
    "trusted.* attributes": lambda f: xattr(f, "trusted.name"),
    "security.* attributes": lambda f: xattr(f, "security.name"),
    "POSIX ACLs": acl,
    "shared mappings": shared_mapping,
    "mappings change the time of a file": mapped_time,
    "programs": executable,
    "renameat2: no replacement": lambda f: rename(f, RENAME_NOREPLACE),
    "renameat2: exchange": lambda f: rename(f, RENAME_EXCHANGE),
    "renameat2: whiteout": lambda f: rename(f, RENAME_WHITEOUT, target=False),
    "device nodes": device,
    "UNIX sockets": unix_socket,
    "FIFOs": fifo,
    "unlinked open files": unlinked,
    "times of a nanosecond": times,
    "used blocks": seen_blocks,
    "sticky and set-group-id directories": sticky,
    "a write clears set-user-id": suid_after_write,
    "names of 255 bytes": long_name,
    "overlayfs above": overlay,
    "loop devices": loop_image,
    "swap files": swap,
    "poll": poll_file,
    "times and links of directories": dir_time,
}


def outcome(act, folder):
    """The value that act() returns, or the name of its error."""
    folder.mkdir()
    try:
        return act(folder)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    except subprocess.CalledProcessError as e:
        return f"{e.cmd[0]} fails"


@pytest.fixture(scope="module")
def xfs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xfs")
    subprocess.run(["truncate", "-s", "1G", folder / "image"], check=True)
    subprocess.run(["mkfs.xfs", "-q", folder / "image"], check=True)
    (folder / "disk").mkdir()
    subprocess.run(["mount", "-o", "loop", folder / "image", folder / "disk"], check=True)
    yield folder / "disk"
    subprocess.run(["umount", "-l", folder / "disk"], check=True)


@pytest.fixture(scope="module")
def mounted(xfs, tmp_path_factory):
    """A directory of the disk, and the mount of another one."""
    class Lower:
        path = xfs

    keeper = mounts.Keeper(tmp_path_factory.mktemp("keeper"))
    volume = mounts.Volume(keeper, Lower, tmp_path_factory.mktemp("places"), "features", "exclusive", "must", "allow-other")
    below = xfs / "below"
    below.mkdir()
    yield below, volume.path
    os.chdir("/")
    keeper.ask("unmount", volume.name, 0, check=False)
    subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
    keeper.stop()


def rows():
    text = PAGE.read_text().split("## Against the disk below")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| (.+?) \| (\w+) \|", text, re.M))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_works_as_on_the_disk_below_or_has_its_row(mounted, feature):
    name = re.sub(r"\W", "-", feature)
    below, mount = (outcome(FEATURES[feature], folder / name) for folder in mounted)
    if feature in rows():  # "False", or the name of an error
        assert str(mount) == rows()[feature] != str(below)
    else:
        assert mount == below


def test_no_file_becomes_immutable_since_its_volume_could_not_be_deleted(mounted):
    assert outcome(set_immutable, mounted[1] / "immutable") == "ENOTSUP"


def test_each_row_is_a_feature():
    assert set(rows()) - set(FEATURES) == {"feature"}
