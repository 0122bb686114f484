# SPDX-License-Identifier: Apache-2.0
"""Features of names, directories and attributes. Each act() returns a value, or raises OSError."""

import ctypes
import fcntl
import os
import signal
import socket
import stat
import struct
import subprocess

from .features import checked, file_of, opened
from .mounts import RENAME_EXCHANGE, RENAME_NOREPLACE, libc, name_open_file, renameat2

RENAME_WHITEOUT = 4
STATX_BTIME, STATX_DIOALIGN = 0x800, 0x2000


def statx(folder, mask):
    os.close(file_of(folder))
    buffer = (ctypes.c_uint8 * 256)()
    checked(libc.statx(-100, os.fsencode(folder / "file"), 0, mask, buffer))
    return bool(struct.unpack_from("I", buffer)[0] & mask)


def handle(folder):
    os.close(file_of(folder))
    buffer = (ctypes.c_uint32 * 40)(128)
    mount_id = ctypes.c_int()
    checked(libc.name_to_handle_at(-100, os.fsencode(folder / "file"), buffer, ctypes.byref(mount_id), 0))
    root = os.open(folder, os.O_RDONLY)
    return os.read(checked(libc.open_by_handle_at(root, buffer, os.O_RDONLY)), 1)


def tmpfile(folder):
    fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"x")
    name_open_file(fd, folder / "named")
    return os.stat(folder / "named").st_size


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


def dir_time(folder):
    (folder / "sub").mkdir()
    os.utime(folder / "sub", (1, 1))
    before = os.stat(folder / "sub").st_mtime
    (folder / "sub/x").write_text("")
    return before, os.stat(folder / "sub").st_mtime > 1, os.stat(folder / "sub").st_nlink


def rename_over_open(folder):
    fd = file_of(folder)
    (folder / "new").write_text("new")
    os.rename(folder / "new", folder / "file")
    return os.fstat(fd).st_nlink, os.pread(fd, 1, 0), (folder / "file").read_text()


def group_of_new(folder):
    os.chown(folder, -1, 4242)
    os.chmod(folder, 0o2775)
    (folder / "sub").mkdir()
    os.close(file_of(folder))
    return [(os.stat(p).st_gid, oct(os.stat(p).st_mode)) for p in (folder / "sub", folder / "file")]


def others_in_sticky(folder):
    """A user deletes only what is hers, though all may write."""
    os.chmod(folder, 0o1777)
    os.close(file_of(folder))
    return subprocess.run(["setpriv", "--reuid=1", "--clear-groups", "rm", "-f", folder / "file"], capture_output=True,
                          check=False).returncode


def default_acl(folder):
    subprocess.run(["setfacl", "-d", "-m", "u:12345:rw", folder], check=True)
    os.close(file_of(folder))
    (folder / "sub").mkdir()
    return [subprocess.run(["getfacl", "-cp", folder / n], check=True, capture_output=True).stdout for n in ("file", "sub")]


def omitted_time(folder):
    """utimensat(2) of one of the two times."""
    os.close(file_of(folder))
    os.utime(folder / "file", (5, 6))
    omit = (1 << 30) - 2
    checked(libc.utimensat(-100, os.fsencode(folder / "file"), (ctypes.c_long * 4)(0, omit, 77, 8), 0))
    seen = os.stat(folder / "file")
    return seen.st_atime_ns, seen.st_mtime_ns


def hard_links(folder):
    fd = file_of(folder)
    os.link(folder / "file", folder / "second")
    both = os.fstat(fd).st_nlink, os.stat(folder / "second").st_ino == os.fstat(fd).st_ino
    os.unlink(folder / "file")
    return both, os.stat(folder / "second").st_nlink


def link_of_directory(folder):
    (folder / "sub").mkdir()
    os.link(folder / "sub", folder / "second")


def symlink_loop(folder):
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    os.stat(folder / "a")


def deep_path(folder):
    """Deeper than a path may be long."""
    os.chdir(folder)
    for _ in range(60):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
    os.close(opened("file"))
    size = os.stat("file").st_size
    os.chdir("/")
    subprocess.run(["rm", "-r", folder], check=True)
    return size


def moved_below_itself(folder):
    (folder / "a/b").mkdir(parents=True)
    os.rename(folder / "a", folder / "a/b/c")


def seek_dir(folder):
    """telldir(3) and seekdir(3) give the same names again."""
    for i in range(300):
        (folder / f"name-{i}").touch()
    libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
    libc.telldir.restype = ctypes.c_long
    stream = ctypes.c_void_p(libc.opendir(os.fsencode(folder)))

    def entry():
        at = libc.readdir(stream)
        return ctypes.string_at(at + 19) if at else None

    for _ in range(100):
        entry()
    place = ctypes.c_long(libc.telldir(stream))
    first = [entry() for _ in range(150)]
    libc.seekdir(stream, place)
    again = [entry() for _ in range(150)]
    libc.closedir(stream)
    return first == again, len(set(first))


def unlink_while_listing(folder):
    for i in range(1000):
        (folder / f"name-{i}").touch()
    with os.scandir(folder) as entries:
        gone = [os.unlink(entry) for entry in entries]
    return len(gone), os.listdir(folder)


def statfs_numbers(folder):
    found = os.statvfs(folder)
    return found.f_bsize, found.f_frsize, found.f_blocks, found.f_files > 0, found.f_namemax


def resolve_beneath(folder):
    """openat2(2): nothing outside of the directory."""
    (folder / "out").symlink_to("/etc/passwd")
    at = os.open(folder, os.O_PATH)
    checked(libc.syscall(437, at, b"out", struct.pack("QQQ", os.O_RDONLY, 0, 8), 24))


def bytes_in_names(folder):
    name = os.fsencode(folder) + b"/\xff\x01 \n\xc3"
    os.close(opened(name))
    return os.listdir(os.fsencode(folder))


def large_xattr(folder):
    os.close(file_of(folder))
    os.setxattr(folder / "file", "user.large", b"v" * 60_000)
    for i in range(50):
        os.setxattr(folder / "file", f"user.name-{i}", b"")
    return len(os.getxattr(folder / "file", "user.large")), len(os.listxattr(folder / "file"))


def xattr_create(folder):
    os.close(file_of(folder))
    os.setxattr(folder / "file", "user.name", b"1")
    os.setxattr(folder / "file", "user.name", b"2", os.XATTR_CREATE)


FEATURES = {
    "statx: time of birth": lambda f: statx(f, STATX_BTIME),
    "statx: alignment for direct I/O": lambda f: statx(f, STATX_DIOALIGN),
    "file handles": handle,
    "O_TMPFILE and linkat": tmpfile,
    "inotify": inotify,
    "F_NOTIFY": dnotify,
    "user.* attributes": lambda f: xattr(f, "user.name"),
    "trusted.* attributes": lambda f: xattr(f, "trusted.name"),
    "security.* attributes": lambda f: xattr(f, "security.name"),
    "POSIX ACLs": acl,
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
    "times and links of directories": dir_time,
    "rename over an open file": rename_over_open,
    "group of a set-group-id directory": group_of_new,
    "a sticky directory protects files of others": others_in_sticky,
    "default ACLs": default_acl,
    "utimensat of one time": omitted_time,
    "hard links": hard_links,
    "hard links of directories": link_of_directory,
    "loops of symbolic links": symlink_loop,
    "paths of 6,000 bytes": deep_path,
    "a directory moved below itself": moved_below_itself,
    "telldir and seekdir": seek_dir,
    "deleting while listing": unlink_while_listing,
    "numbers of statfs": statfs_numbers,
    "openat2: nothing outside": resolve_beneath,
    "any byte in a name": bytes_in_names,
    "attributes of 60 KB, and 50 of them": large_xattr,
    "an attribute that exists already": xattr_create,
}
