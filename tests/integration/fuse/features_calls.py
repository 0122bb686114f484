# SPDX-License-Identifier: Apache-2.0
"""Features of system calls and their flags. Each act() returns a value, or raises OSError."""

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess

from .features import BLOCK, checked, errors_of, file_of, opened
from .mounts import libc

RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND = 1, 2, 4, 8, 16
FICLONERANGE, FIDEDUPERANGE = 0x4020940D, 0xC0189436
GETFLAGS, SETFLAGS, NO_DUMP, STATX_ALL = 0x80086601, 0x40086602, 0x40, 0x1FFF
MAP_SHARED_VALIDATE, MAP_SYNC = 3, 0x80000
MADV_REMOVE, MADV_POPULATE_WRITE = 9, 23
SET_RW_HINT, GET_RW_HINT, CREATED_QUERY, GET_SEALS = 1036, 1035, 1028, 1034
OFD_GETLK, OFD_SETLK = 36, 37
SYS_PREADV2, SYS_PWRITEV2, SYS_CACHESTAT, SYS_READAHEAD = 327, 328, 451, 187
EVENTS = {1: "access", 2: "modify", 4: "attributes", 8: "close after writing", 16: "close", 32: "open", 64: "moved from",
          128: "moved to", 256: "create", 512: "delete", 1024: "itself deleted", 2048: "itself moved", 0x8000: "ignored"}


def opens(folder):
    """Flags of open(2) that refuse something."""
    os.close(file_of(folder))
    (folder / "link").symlink_to("file")
    (folder / "dangling").symlink_to("target")
    (folder / "sub").mkdir()

    def flags(name, how):
        return lambda: os.close(os.open(folder / name, how, 0o600))

    excl = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    return errors_of(
        flags("link", os.O_NOFOLLOW), flags("file", os.O_DIRECTORY), flags("file", excl), flags("dangling", excl),
        flags("dangling", os.O_CREAT | os.O_WRONLY), lambda: os.listdir(folder), flags("sub", os.O_CREAT), flags("none", 0),
        flags("file/x", 0), flags("file/", 0), flags("sub/", os.O_CREAT | os.O_WRONLY), flags("new/", os.O_CREAT | os.O_WRONLY),
        flags("sub", os.O_RDWR), flags("link", os.O_NOFOLLOW | os.O_PATH))


def path_descriptor(folder):
    os.close(file_of(folder))
    fd = os.open(folder / "file", os.O_PATH)
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    checked(libc.fchownat(fd, b"", 5, 6, 0x1000))
    return os.fstat(fd).st_size, os.read(again, 1), os.fstat(again).st_uid, errors_of(lambda: os.read(fd, 1), lambda: os.fchmod(fd, 0))


def created_query(folder):
    """Whether an open made the file (Linux 6.12)."""
    made = opened(folder / "file")
    return fcntl.fcntl(made, CREATED_QUERY), fcntl.fcntl(opened(folder / "file"), CREATED_QUERY)


def by_flags(call, fd, data, offset, flags):
    """preadv2(2) or pwritev2(2) of one buffer."""
    memory = ctypes.create_string_buffer(data, len(data))
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(memory), len(data))
    n = checked(libc.syscall(call, fd, vector, ctypes.c_long(1), ctypes.c_long(offset), ctypes.c_long(0), flags))
    return n, memory.raw[:n]


def write_flags(folder, flags):
    fd = file_of(folder)
    result = errors_of(lambda: by_flags(SYS_PWRITEV2, fd, b"abc", 0, flags))
    return result, os.fstat(fd).st_size, os.pread(fd, 4, 0), os.pread(fd, 4, BLOCK * 4)


def read_flags(folder, flags):
    return by_flags(SYS_PREADV2, file_of(folder), b"abc", 0, flags)


def synchronous(folder):
    fd = opened(folder / "file", os.O_RDWR | os.O_CREAT | os.O_SYNC)
    other = os.open(folder / "file", os.O_WRONLY | os.O_DSYNC)
    return os.write(fd, b"x" * BLOCK), os.pwrite(other, b"y", 1), os.pread(fd, 2, 0)


def past_the_end(folder):
    fd = file_of(folder)
    with mmap.mmap(fd, BLOCK * 4) as memory:
        os.ftruncate(fd, BLOCK)
        child = os.fork()
        if child == 0:
            os._exit(memory[BLOCK * 2])
        _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS


def coherent(folder):
    """A mapping, write(2), O_DIRECT and truncation see each other's bytes."""
    fd, seen = file_of(folder), []
    direct, page = os.open(folder / "file", os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, BLOCK)
    with mmap.mmap(fd, BLOCK * 4) as memory:
        os.pwrite(fd, b"write", 0)
        seen.append(memory[:5])
        memory[:3] = b"map"
        seen.append(os.pread(fd, 5, 0))
        memory.flush(0, BLOCK)
        os.preadv(direct, [page], 0)
        seen.append(page[:5])
        page[:6] = b"direct"
        os.pwritev(direct, [page], 0)
        seen.append((memory[:6], os.pread(fd, 6, 0)))
        os.ftruncate(fd, 3)
        os.ftruncate(fd, BLOCK * 4)
        seen.append(memory[:6])
        checked(libc.msync(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), BLOCK, 1 | 2))
    return seen


def mapped(folder, flags):
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, BLOCK, 3, flags, file_of(folder), ctypes.c_long(0))
    if at == ctypes.c_void_p(-1).value:
        checked(-1)
    libc.munmap(ctypes.c_void_p(at), BLOCK)


def advised(folder, advice):
    fd = file_of(folder)
    os.fsync(fd)
    with mmap.mmap(fd, BLOCK * 4) as memory:
        memory.madvise(advice, BLOCK, BLOCK)
    os.fsync(fd)
    return os.pread(fd, 1, BLOCK), os.stat(folder / "file").st_blocks


def grown_mapping(folder):
    fd = file_of(folder)
    with mmap.mmap(fd, BLOCK) as memory:
        memory.resize(BLOCK * 8)
        memory[BLOCK * 7] = 5
    return os.fstat(fd).st_size, os.pread(fd, 1, BLOCK * 7)


def clone_range(folder):
    source = file_of(folder)
    fcntl.ioctl(opened(folder / "clone"), FICLONERANGE, struct.pack("qQQQ", source, 0, BLOCK, 0))


def deduplicated(folder):
    one, two = file_of(folder), opened(folder / "second", data=bytes([1]) * BLOCK * 4)
    os.fsync(one)
    os.fsync(two)
    made = bytearray(struct.pack("QQHHIqQQiI", 0, BLOCK, 1, 0, 0, two, 0, 0, 0, 0))
    fcntl.ioctl(one, FIDEDUPERANGE, made)
    return struct.unpack_from("Qi", made, 40)


def copies(folder):
    """copy_file_range(2) within a file, where the ranges overlap, beyond its end, and to another file system."""
    fd = opened(folder / "file", data=b"abcdefgh" * 1024)
    other = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
    appended = os.open(folder / "file", os.O_WRONLY | os.O_APPEND)
    read_only = os.open(folder / "file", os.O_RDONLY)
    return errors_of(
        lambda: os.copy_file_range(fd, fd, 100, 0, BLOCK * 3), lambda: os.copy_file_range(fd, fd, 100, 0, 50),
        lambda: os.copy_file_range(fd, fd, 100, 1 << 30, 0), lambda: os.copy_file_range(fd, appended, 10, 0),
        lambda: os.copy_file_range(fd, read_only, 10, 0, 0), lambda: os.copy_file_range(fd, other, 10, 0),
        lambda: os.fstat(fd).st_size, lambda: os.pread(fd, 8, BLOCK * 3))


def seeks(folder):
    """SEEK_HOLE and SEEK_DATA in a file of 8 TiB."""
    fd = opened(folder / "sparse")
    os.ftruncate(fd, 1 << 43)
    os.pwrite(fd, b"x" * BLOCK, 1 << 42)
    end = 1 << 43
    return errors_of(
        lambda: os.lseek(fd, 0, os.SEEK_DATA), lambda: os.lseek(fd, 1 << 42, os.SEEK_HOLE), lambda: os.lseek(fd, 0, os.SEEK_HOLE),
        lambda: os.lseek(fd, end - 5, os.SEEK_DATA), lambda: os.lseek(fd, end, os.SEEK_HOLE), lambda: os.lseek(fd, 0, os.SEEK_END),
        lambda: os.lseek(fd, -1, os.SEEK_SET), lambda: os.fstat(fd).st_size, lambda: os.lseek(fd, 5, 9))


def sizes(folder):
    """Sizes that no file has."""
    fd = file_of(folder)
    read_only = os.open(folder / "file", os.O_RDONLY)
    return errors_of(
        lambda: os.ftruncate(fd, -1), lambda: os.ftruncate(fd, (1 << 63) - 1), lambda: os.ftruncate(read_only, 1),
        lambda: os.truncate(folder, 1), lambda: os.pwrite(fd, b"x", (1 << 63) - 1), lambda: os.write(read_only, b"x"),
        lambda: os.posix_fallocate(fd, 0, 0), lambda: os.posix_fallocate(fd, 1 << 50, 1 << 50), lambda: os.fstat(fd).st_size)


def size_limit(folder):
    """RLIMIT_FSIZE: a signal, and EFBIG."""
    fd = file_of(folder)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (BLOCK * 5, BLOCK * 5))
        short = os.pwrite(fd, b"x" * BLOCK * 2, BLOCK * 4)
        os._exit(errors_of(lambda: os.pwrite(fd, b"x", BLOCK * 5), lambda: os.ftruncate(fd, BLOCK * 6)) == ["EFBIG"] * 2
                 and short == BLOCK)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.fstat(fd).st_size


def advice(folder):
    fd = file_of(folder)
    for what in range(6):
        os.posix_fadvise(fd, 0, BLOCK, what)
    return checked(libc.syscall(SYS_READAHEAD, fd, ctypes.c_long(0), ctypes.c_long(BLOCK)))


def cache_of(folder):
    """cachestat(2): whether pages of the file are in memory."""
    fd = file_of(folder)
    found = (ctypes.c_uint64 * 5)()
    checked(libc.syscall(SYS_CACHESTAT, fd, (ctypes.c_uint64 * 2)(0, 0), found, 0))
    return found[0] > 0


def hints(folder):
    fd = file_of(folder)
    fcntl.fcntl(fd, SET_RW_HINT, struct.pack("Q", 3))
    return struct.unpack("Q", fcntl.fcntl(fd, GET_RW_HINT, bytes(8)))


def to_a_socket(folder):
    one, two = socket.socketpair()
    return os.sendfile(one.fileno(), file_of(folder), 100, BLOCK), two.recv(200) == bytes([1]) * BLOCK


def into_a_file(folder):
    """vmsplice(2) and splice(2) into the file, and tee(2)."""
    out, into = os.pipe()
    out2, into2 = os.pipe()
    os.write(into, b"through pipes")
    teed = checked(libc.tee(out, into2, 100, 0))
    fd = opened(folder / "file")
    return teed, os.splice(out, fd, 100, offset_dst=3), os.pread(fd, 20, 0), os.read(out2, 20)


def lock(kind, start=0, length=0, pid=0):
    return struct.pack("hhqqi4x", kind, 0, start, length, pid)


def lock_of(raw):
    kind, _, start, length, _ = struct.unpack("hhqqi4x", raw)
    return kind, start, length


def split_locks(folder):
    """A range in the middle is unlocked; another description sees two that are left."""
    one, two = file_of(folder), os.open(folder / "file", os.O_RDWR)
    fcntl.fcntl(one, OFD_SETLK, lock(fcntl.F_WRLCK, 0, 100))
    fcntl.fcntl(one, OFD_SETLK, lock(fcntl.F_UNLCK, 40, 20))
    return [lock_of(fcntl.fcntl(two, OFD_GETLK, lock(fcntl.F_RDLCK, at, 10))) for at in (0, 45, 70, 200)]


def read_locks(folder):
    one, two = file_of(folder), os.open(folder / "file", os.O_RDWR)
    fcntl.fcntl(one, OFD_SETLK, lock(fcntl.F_RDLCK))
    fcntl.fcntl(two, OFD_SETLK, lock(fcntl.F_RDLCK))
    return errors_of(lambda: fcntl.fcntl(two, OFD_SETLK, lock(fcntl.F_WRLCK)),
                     lambda: fcntl.flock(one, fcntl.LOCK_SH), lambda: fcntl.flock(two, fcntl.LOCK_SH),
                     lambda: fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda: fcntl.flock(one, fcntl.LOCK_UN),
                     lambda: fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB))


def lock_waits(folder):
    """A lock that is waited for is given when its holder closes."""
    one = file_of(folder)
    fcntl.flock(one, fcntl.LOCK_EX)
    waiting = subprocess.Popen(["flock", folder / "file", "echo", "locked"], stdout=subprocess.PIPE)
    os.close(one)
    return waiting.communicate(timeout=20)[0]


def leases(folder):
    """Which leases the kernel gives beside which opens."""
    fd = file_of(folder)
    reader = os.open(folder / "file", os.O_RDONLY)
    found = errors_of(lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK),
                      lambda: fcntl.fcntl(reader, fcntl.F_SETLEASE, fcntl.F_RDLCK))
    os.close(fd)
    return found, errors_of(lambda: fcntl.fcntl(reader, fcntl.F_SETLEASE, fcntl.F_RDLCK),
                            lambda: fcntl.fcntl(reader, fcntl.F_GETLEASE))


def watched(folder, act, what="."):
    """The events of inotify(7) for a directory or a file while act() runs: (name, event)."""
    os.close(file_of(folder))
    watcher = checked(libc.inotify_init1(os.O_NONBLOCK))
    checked(libc.inotify_add_watch(watcher, os.fsencode(folder / what), 0xFFF))
    act()
    raw, found = os.read(watcher, 65536), []
    while raw:
        _, mask, _, length = struct.unpack_from("iIII", raw)
        found.append((raw[16 : 16 + length].rstrip(b"\0"), EVENTS.get(mask & 0xFFFF, mask), bool(mask & 0x40000000)))
        raw = raw[16 + length :]
    return found


def use(folder):
    path = folder / "file"
    fd = os.open(path, os.O_RDWR)
    os.read(fd, 10)
    os.write(fd, b"x")
    os.ftruncate(fd, 5)
    os.fchmod(fd, 0o600)
    os.close(fd)
    os.setxattr(path, "user.x", b"y")
    os.utime(path, (1, 1))


def rename_and_remove(folder):
    os.mkdir(folder / "sub")
    os.symlink("x", folder / "link")
    os.link(folder / "file", folder / "second")
    os.close(opened(folder / "third"))
    os.rename(folder / "file", folder / "sub/moved")
    os.rename(folder / "sub/moved", folder / "third")
    os.unlink(folder / "third")
    os.unlink(folder / "link")
    os.rmdir(folder / "sub")
    os.unlink(folder / "second")


def use_new(folder):
    os.close(file_of(folder))
    use(folder)
    rename_and_remove(folder)


def fanotify(folder, flags, mask, act):
    """The events of fanotify(7) for the directory and its children, as one mask: the kernel merges some or does not."""
    group = checked(libc.fanotify_init(flags | 2, os.O_RDONLY))  # does not block
    checked(libc.fanotify_mark(group, 1, ctypes.c_uint64(mask), -100, os.fsencode(folder)))
    act()
    raw, found = os.read(group, 65536), 0
    while raw:
        length, _, _, _, event, fd, _ = struct.unpack_from("IBBHQii", raw)
        found |= event
        if fd >= 0:
            os.close(fd)
        raw = raw[length:]
    os.close(group)
    return hex(found)


def permission(folder):
    """fanotify(7): an open that a watcher refuses."""
    os.close(file_of(folder))
    group = checked(libc.fanotify_init(4, os.O_RDONLY))
    checked(libc.fanotify_mark(group, 1, ctypes.c_uint64(0x10000), -100, os.fsencode(folder / "file")))
    asker = subprocess.Popen(["cat", folder / "file"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    fd = struct.unpack_from("IBBHQii", os.read(group, 24))[5]
    os.write(group, struct.pack("iI", fd, 2))
    os.close(fd)
    said = asker.communicate(timeout=20)[1]
    os.close(group)
    return b"not permitted" in said


def statx(path):
    """The mask of the fields that statx(2) has, and the attributes of chattr(1)."""
    buffer = (ctypes.c_uint8 * 256)()
    checked(libc.statx(-100, os.fsencode(path), 0, STATX_ALL, buffer))
    mask, _, attributes = struct.unpack_from("IIQ", buffer)
    return mask & STATX_ALL, attributes & NO_DUMP


def fields_of_statx(folder):
    os.close(file_of(folder))
    return statx(folder / "file")


def attributes_in_statx(folder):
    fd = file_of(folder)
    fcntl.ioctl(fd, SETFLAGS, struct.pack("L", checked_flags(fd) | NO_DUMP))
    return bool(statx(folder / "file")[1])


def checked_flags(fd):
    return struct.unpack("L", fcntl.ioctl(fd, GETFLAGS, bytes(8)))[0]


def xattr_errors(folder):
    path = folder / "file"
    os.close(file_of(folder))
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("file")
    return errors_of(
        lambda: os.setxattr(path, "user." + "n" * 250, b"v"), lambda: os.setxattr(path, "user." + "n" * 251, b"v"),
        lambda: os.setxattr(path, "user.large", b"v" * 65536), lambda: len(os.getxattr(path, "user.large")),
        lambda: os.setxattr(path, "user.larger", b"v" * 65537), lambda: os.setxattr(path, "user.none", b"v", os.XATTR_REPLACE),
        lambda: os.removexattr(path, "user.none"), lambda: os.getxattr(path, "user.none"), lambda: os.setxattr(path, "user.", b"v"),
        lambda: os.setxattr(path, "user.empty", b""), lambda: os.getxattr(path, "user.empty"),
        lambda: os.setxattr(folder / "fifo", "user.x", b"v"), lambda: os.setxattr(folder / "fifo", "trusted.x", b"v"),
        lambda: os.getxattr(folder / "fifo", "trusted.x"), lambda: os.listxattr(folder / "fifo"),
        lambda: os.setxattr(folder, "user.dir", b"v"), lambda: os.listxattr(folder),
        lambda: os.setxattr(path, "other.x", b"v"), lambda: os.setxattr(path, "nospace", b"v"),
        lambda: libc.getxattr(os.fsencode(path), b"user.large", ctypes.create_string_buffer(10), 10),
        lambda: checked(libc.listxattr(os.fsencode(path), ctypes.create_string_buffer(10), 10)),
        lambda: libc.getxattr(os.fsencode(path), b"user.large", None, 0))


def xattr_of_a_link(folder):
    (folder / "link").symlink_to("nothing")
    os.setxattr(folder / "link", "trusted.x", b"v", follow_symlinks=False)
    return os.listxattr(folder / "link", follow_symlinks=False)


def long_links(folder):
    """The longest targets of symbolic links."""
    found = errors_of(*(lambda n=n: os.symlink("t" * n, folder / str(n)) for n in (1, 1023, 1024, 4095)))
    return found, [len(os.readlink(folder / name)) for name in sorted(os.listdir(folder))], os.lstat(folder / "1023").st_size


def long_paths(folder):
    """Paths of PATH_MAX bytes, of a link too."""
    deep = folder
    while len(os.fsencode(deep)) < 3900:
        deep /= "d" * 90
    os.makedirs(deep)
    name = "n" * (4095 - len(os.fsencode(deep)) - 1)
    return errors_of(lambda: os.close(opened(deep / name)), lambda: os.close(opened(deep / (name + "n"))), lambda: os.listdir(deep) == [name])


def listing(folder):
    """Kinds and inodes of names, as readdir(3) and stat(2) show them."""
    closed = file_of(folder)
    os.close(closed)
    (folder / "link").symlink_to("file")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "fifo")
    with os.scandir(folder) as entries:
        return sorted((e.name, e.inode() == os.lstat(e.path).st_ino, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in entries)


def names_while_listing(folder):
    """rewinddir(3) shows new names; a name that stays is listed once though others come and go."""
    for i in range(500):
        (folder / f"old-{i}").touch()
    fd = os.open(folder, os.O_RDONLY)
    first, seen = set(os.listdir(fd)), []
    (folder / "new").touch()
    os.lseek(fd, 0, os.SEEK_SET)
    with os.scandir(folder) as entries:
        for n, entry in enumerate(entries):
            seen.append(entry.name)
            if n % 3 == 0 and n < 300:
                (folder / f"more-{n}").touch()
                os.rename(folder / f"more-{n}", folder / f"moved-{n}")
    kept = [name for name in seen if name.startswith("old-")]
    return len(first), "new" in os.listdir(fd), len(kept), len(set(kept))


def modes_of_seek(folder):
    """A directory's position is a file offset that can be set."""
    for i in range(50):
        (folder / f"name-{i}").touch()
    fd = os.open(folder, os.O_RDONLY)
    return errors_of(lambda: os.lseek(fd, 0, os.SEEK_CUR), lambda: len(os.listdir(fd)), lambda: os.lseek(fd, 0, os.SEEK_SET),
                     lambda: os.lseek(fd, -1, os.SEEK_SET))


def bound(folder):
    """A bind mount of a subdirectory, read-only, and rename across it."""
    (folder / "sub").mkdir()
    (folder / "place").mkdir()
    (folder / "sub/file").write_text("x")
    subprocess.run(["mount", "--bind", "-o", "ro", folder / "sub", folder / "place"], check=True)
    try:
        return errors_of(lambda: (folder / "place/file").read_text(), lambda: (folder / "place/file").write_text("y"),
                         lambda: os.rename(folder / "place/file", folder / "out"), lambda: os.rename(folder / "sub/file", folder / "place/f"),
                         lambda: os.rmdir(folder / "place"))
    finally:
        subprocess.run(["umount", folder / "place"], check=True)


def script(folder):
    (folder / "script").write_text("#!/bin/sh\necho $0 | wc -l\n")
    os.chmod(folder / "script", 0o755)
    return subprocess.run([folder / "script"], capture_output=True, check=True).stdout


def library(folder):
    (folder / "library.so").write_bytes(open("/lib/x86_64-linux-gnu/libm.so.6", "rb").read())
    return ctypes.CDLL(str(folder / "library.so")).abs(-5)


def named_by_proc(folder):
    """Links of /proc/self/fd after a rename and a removal."""
    fd = file_of(folder)
    os.rename(folder / "file", folder / "moved")
    moved = os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(folder))
    os.unlink(folder / "moved")
    return moved, os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(folder))


def modes_of_access(folder):
    os.close(file_of(folder))
    os.chmod(folder / "file", 0o040)
    return [os.access(folder / "file", how) for how in (os.F_OK, os.R_OK, os.W_OK, os.X_OK)]


def dev_and_inode(folder):
    """One device for all files of the volume; an inode number is kept by renames."""
    path, sub = folder / "file", folder / "sub"
    os.close(file_of(folder))
    sub.mkdir()
    was = os.stat(path).st_ino
    os.rename(path, sub / "moved")
    return os.stat(folder).st_dev == os.stat(sub).st_dev == os.stat(sub / "moved").st_dev, os.stat(sub / "moved").st_ino == was


FEATURES = {
    "what open(2) refuses": opens,
    "O_PATH": path_descriptor,
    "F_CREATED_QUERY": created_query,
    "F_GET_SEALS": lambda f: fcntl.fcntl(file_of(f), GET_SEALS),
    "pwritev2: RWF_APPEND": lambda f: write_flags(f, RWF_APPEND),
    "pwritev2: RWF_DSYNC and RWF_SYNC": lambda f: write_flags(f, RWF_DSYNC | RWF_SYNC),
    "pwritev2: RWF_HIPRI": lambda f: write_flags(f, RWF_HIPRI),
    "preadv2: RWF_NOWAIT": lambda f: read_flags(f, RWF_NOWAIT),
    "preadv2: an unknown flag": lambda f: read_flags(f, 1 << 30),
    "O_SYNC and O_DSYNC": synchronous,
    "a mapping past the end": past_the_end,
    "mappings, writes, direct I/O and truncation": coherent,
    "MAP_SHARED_VALIDATE": lambda f: mapped(f, MAP_SHARED_VALIDATE),
    "MAP_SYNC": lambda f: mapped(f, MAP_SHARED_VALIDATE | MAP_SYNC),
    "madvise: MADV_REMOVE": lambda f: advised(f, MADV_REMOVE),
    "madvise: MADV_DONTNEED": lambda f: advised(f, mmap.MADV_DONTNEED),
    "madvise: MADV_POPULATE_WRITE": lambda f: advised(f, MADV_POPULATE_WRITE),
    "mremap": grown_mapping,
    "reflink of a range (FICLONERANGE)": clone_range,
    "deduplication (FIDEDUPERANGE)": deduplicated,
    "copy_file_range: ranges and errors": copies,
    "SEEK_HOLE in 8 TiB": seeks,
    "sizes that no file has": sizes,
    "RLIMIT_FSIZE": size_limit,
    "posix_fadvise and readahead": advice,
    "cachestat": cache_of,
    "F_SET_RW_HINT": hints,
    "sendfile to a socket": to_a_socket,
    "splice into a file, tee": into_a_file,
    "parts of locks": split_locks,
    "shared locks": read_locks,
    "a lock that is waited for": lock_waits,
    "leases beside opens": leases,
    "inotify: a file is used": lambda f: watched(f, lambda: use(f)),
    "inotify: the file itself": lambda f: watched(f, lambda: (use(f), os.unlink(f / "file")), "file"),
    "inotify: names": lambda f: watched(f, lambda: rename_and_remove(f)),
    "fanotify: a directory": lambda f: fanotify(f, 0, 0x0800003B, lambda: use_new(f)),
    "fanotify: names by handle": lambda f: fanotify(f, 0x200 | 0x400, 0x080003CB, lambda: use_new(f)),
    "fanotify: refused opens": permission,
    "statx: fields": fields_of_statx,
    "statx: chattr": attributes_in_statx,
    "errors of attributes": xattr_errors,
    "attributes of symbolic links": xattr_of_a_link,
    "long symbolic links": long_links,
    "paths of PATH_MAX bytes": long_paths,
    "kinds and inodes in a listing": listing,
    "a listing while names change": names_while_listing,
    "offsets of directories": modes_of_seek,
    "bind mounts of subdirectories": bound,
    "scripts": script,
    "shared libraries": library,
    "names in /proc": named_by_proc,
    "access": modes_of_access,
    "devices and inodes": dev_and_inode,
}
