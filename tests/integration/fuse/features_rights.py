# SPDX-License-Identifier: Apache-2.0
"""Features of owners, modes, times and counts. Each act() returns a value, or raises OSError."""

import ctypes
import os
import stat
import struct
import subprocess
import time

from .features import BLOCK, checked, errors_of, file_of, mode_of, opened
from .mounts import RENAME_EXCHANGE, RENAME_NOREPLACE, as_user, libc, name_open_file, renameat2

UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)  # may open raw sockets
OTHER = 1


def closed(folder):
    os.close(file_of(folder))
    return folder / "file"


def clears(folder, act, mode=0o6755):
    """The mode after a user who is not the owner did this with an open file."""
    fd = file_of(folder)
    os.fchmod(fd, mode)
    return as_user(OTHER, lambda: act(fd)), mode_of(folder / "file")


def owner_changes(folder, mode):
    path = closed(folder)
    os.chmod(path, mode)
    os.chown(path, 5, 6)
    return mode_of(path), os.stat(path).st_uid, os.stat(path).st_gid


def group_of_a_member(folder):
    path = closed(folder)
    os.chown(path, OTHER, OTHER)
    member = as_user(OTHER, lambda: os.chown(path, -1, 77), groups=[77])
    stranger = as_user(OTHER, lambda: os.chown(path, -1, 78), groups=[77])
    return member, stranger, os.stat(path).st_gid


def set_group_id_by_a_stranger(folder):
    path = closed(folder)
    os.chown(path, OTHER, 77)
    return as_user(OTHER, lambda: os.chmod(path, 0o2755)), mode_of(path)


def made_by_a_user(folder):
    os.chmod(folder, 0o2777)
    os.chown(folder, -1, 77)
    os.umask(0o027)
    result = as_user(OTHER, lambda: (os.close(opened(folder / "f")), os.mkdir(folder / "d"), os.mkfifo(folder / "p")))
    os.umask(0o022)
    return result, [(mode_of(folder / n), os.stat(folder / n).st_uid, os.stat(folder / n).st_gid) for n in "fdp"]


def set_group_id_file_by_a_stranger(folder):
    """A file that a user makes with S_ISGID in a directory of another group."""
    os.chmod(folder, 0o2777)
    os.chown(folder, -1, 77)
    as_user(OTHER, lambda: os.close(os.open(folder / "f", os.O_CREAT | os.O_WRONLY, 0o2775)))
    return mode_of(folder / "f"), os.stat(folder / "f").st_gid


def acl_then_chmod(folder):
    path = closed(folder)
    subprocess.run(["setfacl", "-m", "u:12345:rwx,m::rwx", path], check=True)
    os.chmod(path, 0o640)
    return subprocess.run(["getfacl", "-cp", path], check=True, capture_output=True).stdout


def acl_decides(folder):
    path = closed(folder)
    os.chmod(path, 0o600)
    before = as_user(12345, lambda: path.read_bytes())
    subprocess.run(["setfacl", "-m", "u:12345:r", path], check=True)
    after = as_user(12345, lambda: path.read_bytes()), as_user(12345, lambda: path.write_text("x"))
    subprocess.run(["setfacl", "-b", path], check=True)
    return before, after, as_user(12345, lambda: path.read_bytes()), mode_of(path)


def default_acl_and_umask(folder):
    subprocess.run(["setfacl", "-d", "-m", "u::rwx,g::rwx,o::rx,m::rwx", folder], check=True)
    os.umask(0o077)
    os.close(os.open(folder / "f", os.O_CREAT | os.O_WRONLY, 0o666))
    os.mkdir(folder / "d")
    os.umask(0o022)
    return [mode_of(folder / n) for n in "fd"]


def acl_of_a_tmpfile(folder):
    subprocess.run(["setfacl", "-d", "-m", "u:12345:rw", folder], check=True)
    fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o660)
    name_open_file(fd, folder / "named")
    return subprocess.run(["getfacl", "-cp", folder / "named"], check=True, capture_output=True).stdout


def capability_goes(folder, act):
    """File capabilities after act(descriptor)."""
    fd = file_of(folder)
    os.setxattr(folder / "file", "security.capability", CAPABILITY)
    had = os.getxattr(folder / "file", "security.capability") == CAPABILITY
    act(fd)
    try:
        return had, os.getxattr(folder / "file", "security.capability")
    except OSError as e:
        return had, e.errno


def set_user_id_program(folder):
    """Whether id(1) with the bit runs as its owner."""
    (folder / "id").write_bytes(open("/usr/bin/id", "rb").read())
    os.chmod(folder / "id", 0o4755)
    command = ["setpriv", f"--reuid={OTHER}", "--clear-groups", folder / "id", "-u"]
    return subprocess.run(command, capture_output=True, check=True).stdout == b"0\n"


def device_works(folder):
    os.mknod(folder / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    fd = os.open(folder / "zero", os.O_RDONLY)
    return os.read(fd, 3), os.stat(folder / "zero").st_rdev


def set_times(path, *numbers, flags=0):
    checked(libc.utimensat(-100, os.fsencode(path), (ctypes.c_long * 4)(*numbers), flags))


def times_of(path):
    seen = os.lstat(path)
    return seen.st_atime_ns, seen.st_mtime_ns


def time_of(folder, seconds):
    path = closed(folder)
    set_times(path, seconds, 5, seconds, 7)
    return times_of(path)


def times_by_a_writer(folder):
    """A user who may write sets both times to now, and to nothing else."""
    path = closed(folder)
    os.chmod(path, 0o666)
    set_times(path, 5, 5, 5, 5)
    now = as_user(OTHER, lambda: set_times(path, 0, UTIME_NOW, 0, UTIME_NOW))
    recent = time.time() - os.stat(path).st_mtime < 100
    other = as_user(OTHER, lambda: set_times(path, 5, 5, 5, 5))
    return now, recent, other, as_user(OTHER, lambda: set_times(path, 0, UTIME_NOW, 0, UTIME_OMIT))


def times_of_a_link(folder):
    (folder / "link").symlink_to("nothing")
    set_times(folder / "link", 5, 6, 7, 8, flags=0x100)
    os.lchown(folder / "link", 7, 8)
    return times_of(folder / "link"), os.lstat(folder / "link").st_uid, os.lstat(folder / "link").st_gid


def moves(folder, act, *watched):
    """Which of the times of which files move when act() runs: by mtime and ctime."""
    for name in ("a", "b", "d", "e"):
        if name in "de":
            os.mkdir(folder / name)
        else:
            os.close(opened(folder / name, data=b"x" * BLOCK))
    os.link(folder / "a", folder / "second")
    before = {}
    for name in watched:
        os.utime(folder / name, (9, 9))
    for name in watched:
        before[name] = os.stat(folder / name)
    time.sleep(0.02)  # more than a tick of the clock of file times
    act(folder)
    found = []
    for name in watched:
        was, now = before[name], os.stat(folder / name)
        found.append((name, now.st_mtime_ns != was.st_mtime_ns, now.st_ctime_ns != was.st_ctime_ns, now.st_nlink, now.st_size))
    return found


def write_and_stat(folder):
    """Size, blocks and times of an open file after each change, by path and by descriptor."""
    fd, seen = opened(folder / "file"), []
    acts = (lambda: os.write(fd, b"x" * BLOCK * 3), lambda: os.ftruncate(fd, 100), lambda: os.ftruncate(fd, BLOCK * 9),
            lambda: os.posix_fallocate(fd, 0, BLOCK * 20), lambda: os.pwrite(fd, b"y", BLOCK * 40),
            lambda: checked(libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(BLOCK * 8))))
    for act in acts:
        act()
        os.fsync(fd)
        by_path, by_fd = os.stat(folder / "file"), os.fstat(fd)
        seen.append((by_path.st_size, by_path.st_blocks, by_fd.st_size, by_fd.st_blocks, by_path.st_mtime_ns == by_fd.st_mtime_ns))
    return seen


def many_links(folder):
    path = closed(folder)
    for i in range(1000):
        os.link(path, folder / f"l{i}")
    full = os.stat(path).st_nlink
    for i in range(999):
        os.unlink(folder / f"l{i}")
    return full, os.stat(path).st_nlink, os.stat(folder / "l999").st_nlink


def link_of_a_symlink(folder):
    closed(folder)
    (folder / "symlink").symlink_to("file")
    os.link(folder / "symlink", folder / "same", follow_symlinks=False)
    os.link(folder / "symlink", folder / "followed", follow_symlinks=True)
    return (folder / "same").is_symlink(), (folder / "followed").is_symlink(), os.stat(folder / "file").st_nlink


def link_of_a_removed_file(folder):
    fd = file_of(folder)
    os.unlink(folder / "file")
    name_open_file(fd, folder / "again")


def exclusive_tmpfile(folder):
    fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    name_open_file(fd, folder / "named")


def renames(folder, old, new, flags=0):
    """A file, a directory with a file, an empty one, and a link."""
    closed(folder)
    (folder / "full").mkdir()
    (folder / "full/inside").touch()
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("file")
    renameat2(folder / old, folder / new, flags)
    return sorted((n, stat.S_IFMT(os.lstat(folder / n).st_mode), os.lstat(folder / n).st_nlink) for n in os.listdir(folder))


def whiteout(folder):
    closed(folder)
    renameat2(folder / "file", folder / "moved", 4)
    left = os.lstat(folder / "file")
    return stat.S_ISCHR(left.st_mode), left.st_rdev, (folder / "moved").stat().st_size


def rename_of_the_same_file(folder):
    closed(folder)
    os.link(folder / "file", folder / "second")
    os.rename(folder / "file", folder / "second")
    return sorted(os.listdir(folder)), os.stat(folder / "file").st_nlink


def removals(folder):
    (folder / "full").mkdir()
    (folder / "full/inside").touch()
    return errors_of(
        lambda: os.rmdir(folder / "full"), lambda: os.unlink(folder / "full"), lambda: os.rmdir(folder / "full/inside"),
        lambda: os.rmdir(f"{folder}/full/."), lambda: os.rmdir(folder / "none"), lambda: os.mkdir(folder / "full"),
        lambda: os.mkdir(folder / "full/inside/x"), lambda: os.open(folder / "full", os.O_WRONLY),
        lambda: os.read(os.open(folder / "full", os.O_RDONLY), 1), lambda: os.unlink(f"{folder}/full/inside/"))


def removed_directory(folder):
    (folder / "gone").mkdir()
    fd = os.open(folder / "gone", os.O_RDONLY)
    os.chdir(folder / "gone")
    os.rmdir(folder / "gone")
    found = [os.fstat(fd).st_nlink, os.listdir(fd), *errors_of(
        os.getcwd, lambda: os.open("x", os.O_CREAT | os.O_WRONLY), lambda: os.mkdir("y"), lambda: os.stat("..").st_mode)]
    os.chdir("/")
    return found


def access_times(folder):
    """When a read moves the access time, as the kernel's default says: if it is older than the others."""
    path, seen = closed(folder), []
    for at, changed in ((5, 9), (2_000_000_000, 9)):
        os.utime(path, (at, changed))
        path.read_bytes()
        seen.append(os.stat(path).st_atime == at)
    fd = os.open(path, os.O_RDONLY | os.O_NOATIME)
    os.utime(path, (5, 9))
    os.read(fd, 1)
    return seen, os.stat(path).st_atime, as_user(OTHER, lambda: os.open(path, os.O_RDONLY | os.O_NOATIME))


def renames_in_a_sticky_directory(folder):
    os.chmod(folder, 0o1777)
    closed(folder)
    mine = as_user(OTHER, lambda: os.close(opened(folder / "mine")))
    return mine, as_user(OTHER, lambda: os.rename(folder / "file", folder / "taken")), as_user(
        OTHER, lambda: os.rename(folder / "mine", folder / "file")), as_user(OTHER, lambda: os.rename(folder / "mine", folder / "own"))


FEATURES = {
    "a write by another user clears the bits": lambda f: clears(f, lambda fd: os.write(fd, b"x")),
    "a write clears set-group-id without g+x": lambda f: "0o100745" in clears(f, lambda fd: os.write(fd, b"x"), 0o2745),
    "a truncation by another user clears the bits": lambda f: clears(f, lambda fd: os.ftruncate(fd, 10)),
    "fallocate by another user clears the bits": lambda f: clears(f, lambda fd: os.posix_fallocate(fd, 0, BLOCK * 9)),
    "chown clears set-user-id": lambda f: owner_changes(f, 0o6755),
    "chown keeps set-group-id without g+x": lambda f: owner_changes(f, 0o6645),
    "chgrp by a member": group_of_a_member,
    "set-group-id by a stranger": set_group_id_by_a_stranger,
    "files that a user makes": made_by_a_user,
    "a set-group-id file that a stranger makes": set_group_id_file_by_a_stranger,
    "chmod and the mask of an ACL": acl_then_chmod,
    "an ACL decides": acl_decides,
    "a default ACL and the umask": default_acl_and_umask,
    "a default ACL and O_TMPFILE": acl_of_a_tmpfile,
    "capabilities of a file": lambda f: capability_goes(f, lambda _: None),
    "a write removes capabilities": lambda f: capability_goes(f, lambda fd: os.write(fd, b"x")),
    "a truncation removes capabilities": lambda f: capability_goes(f, lambda fd: os.ftruncate(fd, 1)),
    "chown removes capabilities": lambda f: capability_goes(f, lambda fd: os.fchown(fd, 5, 5)),
    "set-user-id programs": set_user_id_program,
    "devices can be used": device_works,
    "times after 2038": lambda f: time_of(f, 1 << 32),
    "times before 1970": lambda f: time_of(f, -1_000_000_000),
    "times after 2486": lambda f: time_of(f, 1 << 35),
    "times before 1901": lambda f: time_of(f, -(1 << 33)),
    "times set by a user who may write": times_by_a_writer,
    "times and owner of a symbolic link": times_of_a_link,
    "times: link": lambda f: moves(f, lambda f: os.link(f / "a", f / "new"), ".", "a"),
    "times: unlink of one of two names": lambda f: moves(f, lambda f: os.unlink(f / "second"), ".", "a"),
    "times: rename": lambda f: moves(f, lambda f: os.rename(f / "a", f / "d/a2"), ".", "d", "second"),
    "times: rename of a directory": lambda f: moves(f, lambda f: os.rename(f / "d", f / "e/d2"), ".", "e"),
    "times: rename over a file": lambda f: moves(f, lambda f: os.rename(f / "b", f / "a"), ".", "second"),
    "times: exchange": lambda f: moves(f, lambda f: renameat2(f / "a", f / "d", RENAME_EXCHANGE), ".", "second"),
    "times: mkdir and rmdir": lambda f: moves(f, lambda f: (os.mkdir(f / "d/x"), os.rmdir(f / "e")), ".", "d"),
    "times: chmod and chown": lambda f: moves(f, lambda f: (os.chmod(f / "a", 0o600), os.chown(f / "d", 5, 5)), ".", "a", "d"),
    "times: attributes": lambda f: moves(f, lambda f: os.setxattr(f / "a", "user.x", b"y"), "a"),
    "times: write": lambda f: moves(f, lambda f: (f / "a").write_text("y"), ".", "a", "second"),
    "times: append": lambda f: moves(f, lambda f: os.write(os.open(f / "a", os.O_WRONLY | os.O_APPEND), b"y"), "a", "second"),
    "times: truncate": lambda f: moves(f, lambda f: os.truncate(f / "a", 3), "a", "second"),
    "times: truncate to the same size": lambda f: moves(f, lambda f: os.truncate(f / "a", BLOCK), "a"),
    "times: O_TRUNC": lambda f: moves(f, lambda f: os.open(f / "a", os.O_WRONLY | os.O_TRUNC), "a", "second"),
    "times: copy_file_range": lambda f: moves(f, lambda f: os.copy_file_range(
        os.open(f / "a", os.O_RDONLY), os.open(f / "b", os.O_WRONLY), 100), "b"),
    "times: a named O_TMPFILE": lambda f: moves(f, lambda f: name_open_file(os.open(f, os.O_TMPFILE | os.O_RDWR), f / "n"), "."),
    "sizes and blocks of an open file": write_and_stat,
    "1,000 hard links": many_links,
    "links of a symbolic link": link_of_a_symlink,
    "a link of a removed file": link_of_a_removed_file,
    "O_TMPFILE with O_EXCL gets no name": exclusive_tmpfile,
    "rename: directory over an empty one": lambda f: renames(f, "full", "empty"),
    "rename: directory over a full one": lambda f: renames(f, "empty", "full"),
    "rename: file over a directory": lambda f: renames(f, "file", "empty"),
    "rename: directory over a file": lambda f: renames(f, "empty", "file"),
    "rename: link over a file": lambda f: renames(f, "link", "file"),
    "rename: into a directory": lambda f: renames(f, "empty", "full/empty"),
    "rename: exchange of file and directory": lambda f: renames(f, "file", "full", RENAME_EXCHANGE),
    "rename: exchange with nothing": lambda f: renames(f, "file", "none", RENAME_EXCHANGE),
    "rename: no replacement of a directory": lambda f: renames(f, "full", "empty", RENAME_NOREPLACE),
    "rename: two flags that exclude each other": lambda f: renames(f, "full", "empty", RENAME_NOREPLACE | RENAME_EXCHANGE),
    "rename: what a whiteout is": whiteout,
    "rename: two names of one file": rename_of_the_same_file,
    "errors of removals": removals,
    "a removed directory": removed_directory,
    "access times": access_times,
    "renames in a sticky directory": renames_in_a_sticky_directory,
}
