# SPDX-License-Identifier: Apache-2.0
"""Features of open files and their bytes. Each act() returns a value, or raises OSError."""

import array
import ctypes
import fcntl
import mmap
import os
import select
import signal
import struct
import subprocess

from .features import BLOCK, checked, file_of, opened
from .mounts import libc

KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
FICLONE, GETFLAGS, SETFLAGS, FSGETXATTR, FSSETXATTR = 0x40049409, 0x80086601, 0x40086602, 0x801C581F, 0x401C5820
FIEMAP, FIGETBSZ, GETVERSION = 0xC020660B, 2, 0x80087601


def fallocate(folder, mode, offset, length):
    fd = file_of(folder)
    checked(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))
    return os.fstat(fd).st_size, hash(os.pread(fd, BLOCK * 8, 0))


def ficlone(folder):
    source = file_of(folder)
    fcntl.ioctl(opened(folder / "clone"), FICLONE, source)


def copy_range(folder):
    target = opened(folder / "copy")
    n = os.copy_file_range(file_of(folder), target, BLOCK * 4, offset_src=0)
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


def fs_xattr(folder):
    fcntl.ioctl(file_of(folder), FSGETXATTR, bytearray(28))


def fiemap(folder):
    fd = file_of(folder)
    os.fsync(fd)
    fcntl.ioctl(fd, FIEMAP, bytearray(struct.pack("QQIIII", 0, 1 << 62, 0, 0, 0, 0)))


def direct_io(folder):
    os.close(file_of(folder))
    memory = mmap.mmap(-1, BLOCK)
    fd = os.open(folder / "file", os.O_RDWR | os.O_DIRECT)
    return os.preadv(fd, [memory], 0), os.pwritev(fd, [memory], 0)


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


def posix_lock(fd):
    """Of this process; a child asks."""
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10)
    child = os.fork()
    if child == 0:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lease_breaks(folder):
    """A lease for writing is broken by a reader, who waits until its holder gives it back."""
    fd = file_of(folder)
    broken = []
    signal.signal(signal.SIGIO, lambda *_: (broken.append(1), fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)))
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    done = subprocess.run(["head", "-c1", folder / "file"], capture_output=True, check=False)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    return done.stdout, len(broken)


def append(folder):
    first, second = (opened(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(2))
    for fd, data in ((first, b"a"), (second, b"b"), (first, b"c")):
        os.write(fd, data)
    return (folder / "log").read_bytes()


def private_mapping(folder):
    fd = file_of(folder)
    with mmap.mmap(fd, BLOCK, flags=mmap.MAP_PRIVATE) as memory:
        memory[0] = 9
        return os.pread(fd, 1, 0), memory[0]


def through_a_pipe(folder):
    out, into = os.pipe()
    fd = file_of(folder)
    n = os.splice(fd, into, BLOCK, offset_src=100)
    target = opened(folder / "target")
    return n, os.splice(out, target, BLOCK), os.pread(target, 3, 0)


def send_file(folder):
    target = opened(folder / "target")
    return os.sendfile(target, file_of(folder), 5, BLOCK), os.fstat(target).st_size


def kernel_aio(folder):
    """Linux's own asynchronous I/O: io_submit(2)."""
    fd = file_of(folder)
    memory = mmap.mmap(-1, BLOCK)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = ctypes.c_ulong()
    checked(libc.syscall(206, 1, ctypes.byref(context)))
    request = ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 0, 0, 0, 0, 0, fd, address, BLOCK, BLOCK, 0, 0, 0))
    checked(libc.syscall(209, context, 1, (ctypes.c_void_p * 1)(ctypes.addressof(request))))
    event = ctypes.create_string_buffer(32)
    checked(libc.syscall(208, context, 1, 1, event, None))
    checked(libc.syscall(207, context))
    return struct.unpack("QQqq", event.raw)[2], memory[0]


def io_uring(folder):
    """One read, by a ring with the offsets that io_uring_setup(2) returns."""
    fd = file_of(folder)
    memory = mmap.mmap(-1, BLOCK)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    parameters = (ctypes.c_uint32 * 30)()
    ring = checked(libc.syscall(425, 1, parameters))
    sq_tail, sq_array, cq_cqes = parameters[11], parameters[16], parameters[25]
    with mmap.mmap(ring, 4096) as queue, mmap.mmap(ring, 4096, offset=0x10000000) as entries:
        entries[:64] = struct.pack("BBHiQQIIQ24x", 22, 0, 0, fd, BLOCK, address, BLOCK, 0, 7)
        queue[sq_array : sq_array + 4] = struct.pack("I", 0)
        queue[sq_tail : sq_tail + 4] = struct.pack("I", 1)
        checked(libc.syscall(426, ring, 1, 1, 1, None, 0))
        user, result = struct.unpack("Qi", queue[cq_cqes : cq_cqes + 12])
    os.close(ring)
    return user, result, memory[0]


def truncated_while_open(folder):
    fd = file_of(folder)
    os.truncate(folder / "file", 10)
    os.truncate(folder / "file", 20)
    return os.fstat(fd).st_size, os.pread(fd, 30, 0)


def busy_program(folder):
    (folder / "program").write_bytes(open("/bin/sleep", "rb").read())
    os.chmod(folder / "program", 0o755)
    running = subprocess.Popen([folder / "program", "60"])
    try:
        opened(folder / "program", os.O_WRONLY)
    finally:
        running.kill()
        running.wait()


def written_program(folder):
    """exec(2) of a file that is open for writing."""
    (folder / "program").write_bytes(open("/bin/true", "rb").read())
    os.chmod(folder / "program", 0o755)
    fd = opened(folder / "program", os.O_WRONLY)
    try:
        return subprocess.run([folder / "program"], check=False).returncode
    finally:
        os.close(fd)


def syncs(folder):
    fd = file_of(folder)
    of_folder = os.open(folder, os.O_RDONLY)
    checked(libc.syncfs(fd))
    checked(libc.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(BLOCK), 7))
    return os.fsync(of_folder), os.fdatasync(fd)


def large_offset(folder):
    fd = file_of(folder)
    os.pwrite(fd, b"x", (1 << 42) - 1)
    return os.fstat(fd).st_size, os.pread(fd, 2, (1 << 42) - 2)


def set_immutable(folder):
    fd = file_of(folder)
    buffer = array.array("L", [0x10])
    fcntl.ioctl(fd, SETFLAGS, buffer)


FEATURES = {
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
    "O_DIRECT": direct_io,
    "leases": lease,
    "flock": lambda f: locks(f, flock),
    "POSIX locks of descriptions": lambda f: locks(f, ofd_lock),
    "shared mappings": shared_mapping,
    "mappings change the time of a file": mapped_time,
    "programs": executable,
    "loop devices": loop_image,
    "swap files": swap,
    "poll": poll_file,
    "POSIX locks": lambda f: posix_lock(file_of(f)),
    "a lease is broken": lease_breaks,
    "O_APPEND by two": append,
    "private mappings": private_mapping,
    "splice": through_a_pipe,
    "sendfile": send_file,
    "io_submit": kernel_aio,
    "io_uring": io_uring,
    "truncation of an open file": truncated_while_open,
    "writing to a program that runs": busy_program,
    "running a program that is being written": written_program,
    "fsync of a directory, syncfs, sync_file_range": syncs,
    "files of 4 TiB": large_offset,
}
