# SPDX-License-Identifier: Apache-2.0
"""Features that programs rely on: copies of trees, locks and mappings of several processes, rights without root's power.
Each act() returns a value, or raises OSError."""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import time

from .features import BLOCK, checked, errors_of, file_of, mode_of, opened
from .features_calls import OFD_SETLK, SYS_PREADV2, SYS_PWRITEV2, by_flags, lock
from .mounts import as_user, libc

OTHER = 12345
RWF_NOAPPEND, RWF_ATOMIC, RWF_DONTCACHE = 0x20, 0x40, 0x80
GETFSUUID, FSGETXATTR, FSSETXATTR, XFLAG_NODUMP, XFLAG_EXTSIZE = 0x80111500, 0x801C581F, 0x401C5820, 0x80, 0x800
SYS_FUTEX, SYS_FILE_GETATTR, SYS_FILE_SETATTR = 202, 468, 469
CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SYS_ADMIN, MKNOD, SETFCAP = 0, 1, 2, 3, 21, 27, 31
PR_CAPBSET_DROP, CAPABILITY_VERSION = 24, 0x20080522
DATABASE = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=200)
for i in range(30):
    with base:
        base.execute("insert into t values (?)", (i,))
"""


def process(act):
    """Runs act() in a child that then waits to be killed; returns its pid once act() has returned."""
    ready, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os.write(report, b"x")
            while True:
                signal.pause()
        finally:
            os._exit(255)
    os.close(report)
    assert os.read(ready, 1), "act() failed in the child"
    os.close(ready)
    return pid


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def size_bits(folder):
    return os.pathconf(folder, "PC_FILESIZEBITS")


def not_appended(folder):
    """Whether pwritev2(2) wrote at its offset, although the file is open for appending."""
    fd = os.open(folder / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(fd, b"abcdef")
    by_flags(SYS_PWRITEV2, fd, b"XY", 1, RWF_NOAPPEND)
    return os.pread(fd, 10, 0) == b"aXYdef"


def atomic(folder):
    os.close(file_of(folder))
    by_flags(SYS_PWRITEV2, os.open(folder / "file", os.O_RDWR | os.O_DIRECT), bytes(BLOCK), 0, RWF_ATOMIC)


def uuid_length(folder):
    return fcntl.ioctl(os.open(folder, os.O_RDONLY), GETFSUUID, bytes(17))[0]


def extent_size(folder):
    fd = opened(folder / "file")
    attributes = bytearray(fcntl.ioctl(fd, FSGETXATTR, bytes(28)))
    struct.pack_into("II", attributes, 0, struct.unpack_from("I", attributes)[0] | XFLAG_EXTSIZE, 1 << 20)
    fcntl.ioctl(fd, FSSETXATTR, bytes(attributes))


def attributes_by_path(folder):
    os.close(file_of(folder))
    path, attributes = os.fsencode(folder / "file"), (ctypes.c_uint64 * 3)()
    checked(libc.syscall(SYS_FILE_GETATTR, -100, path, attributes, ctypes.c_long(24), 0))
    attributes[0] |= XFLAG_NODUMP
    return checked(libc.syscall(SYS_FILE_SETATTR, -100, path, attributes, ctypes.c_long(24), 0))


def marked(folder, flags, how, mask):
    group = checked(libc.fanotify_init(flags, os.O_RDONLY))
    checked(libc.fanotify_mark(group, 1 | how, ctypes.c_uint64(mask), -100, os.fsencode(folder)))
    os.close(group)


def polled(folder):
    select.epoll().register(file_of(folder), select.EPOLLIN)
    return True


def direct_later(folder):
    fd = file_of(folder)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
    return len(os.pread(fd, 100, 0))


def written_by_root(folder):
    fd = file_of(folder)
    os.chmod(folder / "file", 0o6755)
    os.write(fd, b"x")
    return mode_of(folder / "file") == "0o106755"


def owned_by_nobody_else(folder):
    os.close(file_of(folder))
    os.chmod(folder / "file", 0o6755)
    os.chown(folder / "file", -1, -1)
    return mode_of(folder / "file") == "0o100755"


def acl_and_set_group_id(folder):
    """A directory of a group that the setter is not in, as a shared one is made."""
    shared, seen = folder / "shared", []
    shared.mkdir()
    os.chown(shared, 3, 4)
    for name, words in (("own", ["-m", "u:7:rwx"]), ("default", ["-d", "-m", "u:7:rwx"]), ("none", ["-b"])):
        os.chmod(shared, 0o2771)
        subprocess.run(["setfacl", *words, shared], check=True)
        os.mkdir(shared / name)
        seen.append((mode_of(shared), mode_of(shared / name), os.stat(shared / name).st_gid))
    return seen


def acl_by_a_stranger(folder):
    """Whether the bit goes when the owner, who is not in the group, sets an ACL."""
    shared = folder / "shared"
    shared.mkdir()
    os.chown(shared, OTHER, 4)
    os.chmod(shared, 0o2771)
    as_user(OTHER, lambda: subprocess.run(["setfacl", "-m", "u:7:rwx", shared], check=True))
    return mode_of(shared) == "0o40771"


def listed(folder, name):
    """Whether root without CAP_SYS_ADMIN finds an attribute in a listing."""
    path = folder / "file"
    os.close(file_of(folder))
    os.setxattr(path, "trusted.other", b"value")
    subprocess.run(["setfacl", "-m", "u:7:r", path], check=True)

    def find():
        if name in os.listxattr(path):
            os.getxattr(path, name)
            return
        raise OSError(errno.EXDEV, "not listed")

    return without([], find), without([SYS_ADMIN], find)


def look(top):
    """The names of a tree with everything that a copy keeps."""
    found = []
    for at, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(at, name)
            seen = os.lstat(path)
            found.append((os.path.relpath(path, top), oct(seen.st_mode), seen.st_uid, seen.st_gid, seen.st_mtime_ns,
                          stat.S_ISDIR(seen.st_mode) or (seen.st_nlink, seen.st_size),
                          sorted((key, os.getxattr(path, key, follow_symlinks=False)) for key in os.listxattr(path, follow_symlinks=False))))
    return sorted(found)


def copies(folder):
    """cp(1) and tar(1) of a tree with everything in it."""
    tree = folder / "tree"
    (tree / "shared").mkdir(parents=True)
    (tree / "shared/file").write_bytes(os.urandom(9999))
    os.setxattr(tree / "shared/file", "user.key", b"value")
    subprocess.run(["setfacl", "-m", "u:7:r", tree / "shared/file"], check=True)
    (tree / "link").symlink_to("shared/file")
    os.link(tree / "shared/file", tree / "second")
    os.mkfifo(tree / "fifo")
    os.chown(tree / "shared", 3, 4)
    os.chmod(tree / "shared", 0o2751)
    os.utime(tree / "shared/file", ns=(123456789123, 987654321987))
    sparse = opened(tree / "sparse")
    os.ftruncate(sparse, 1 << 20)
    os.pwrite(sparse, b"x", 500_000)
    subprocess.run(["cp", "-a", tree, folder / "copy"], check=True)
    (folder / "unpacked").mkdir()
    words = ["tar", "--xattrs", "--acls", "--sparse", "--format=posix"]
    subprocess.run([*words, "-C", tree, "-cf", folder / "tar", "."], check=True)
    subprocess.run([*words, "-C", folder / "unpacked", "-xpf", folder / "tar"], check=True)
    whole = look(tree)
    return len(whole), look(folder / "copy") == whole, look(folder / "unpacked") == whole


def killed_holders(folder):
    """Locks of a process that SIGKILL ends: refused before, given after."""
    os.close(file_of(folder))
    ways = (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
            lambda fd: fcntl.fcntl(fd, OFD_SETLK, lock(fcntl.F_WRLCK)))
    seen = []
    for way in ways:
        holder = process(lambda way=way: way(os.open(folder / "file", os.O_RDWR)))
        fd = os.open(folder / "file", os.O_RDWR)
        seen += errors_of(lambda way=way, fd=fd: way(fd) and None)
        kill(holder)
        seen += errors_of(lambda way=way, fd=fd: way(fd) and None)
        os.close(fd)
    return seen


def wrong_descriptors(folder):
    os.close(file_of(folder))
    reads, writes = os.open(folder / "file", os.O_RDONLY), os.open(folder / "file", os.O_WRONLY)
    return errors_of(lambda: fcntl.lockf(reads, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda: fcntl.lockf(writes, fcntl.LOCK_SH | fcntl.LOCK_NB),
                     lambda: fcntl.fcntl(reads, OFD_SETLK, lock(fcntl.F_WRLCK)), lambda: mmap.mmap(reads, BLOCK, prot=3),
                     lambda: mmap.mmap(writes, BLOCK, prot=1), lambda: len(mmap.mmap(reads, BLOCK, flags=2, prot=3)))


def lose(capabilities):
    head, sets = struct.pack("II", CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    checked(libc.capget(head, sets))
    for one in capabilities:
        checked(libc.prctl(PR_CAPBSET_DROP, one, 0, 0, 0))
        for kind in range(3):
            sets[one // 32 * 3 + kind] &= ~(1 << one % 32)
    checked(libc.capset(head, sets))


def without(capabilities, act):
    """The error of act() by root that has lost these capabilities."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            lose(capabilities)
            seen, = errors_of(act)
            code = getattr(errno, str(seen), 0)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode[code] if code else "done"


def powerless_root(folder):
    os.close(file_of(folder))
    other, sticky, closed = folder / "file", folder / "sticky", folder / "closed"
    sticky.mkdir()
    (sticky / "file").touch()
    closed.mkdir()
    for path, mode in ((sticky / "file", 0o644), (sticky, 0o1777), (other, 0o600), (closed, 0)):
        os.chown(path, 5, 5)
        os.chmod(path, mode)
    rights = [DAC_OVERRIDE, DAC_READ_SEARCH]
    return [without(*one) for one in (
        (rights, other.read_bytes), (rights, lambda: other.write_text("x")), (rights, lambda: os.listdir(closed)),
        (rights, lambda: (closed / "new").touch()), (rights, lambda: os.setxattr(other, "user.x", b"")),
        ([CHOWN], lambda: os.chown(other, 7, 7)), ([FOWNER], lambda: os.chmod(other, 0o644)), ([FOWNER], lambda: os.utime(other, (1, 1))),
        ([FOWNER], lambda: os.unlink(sticky / "file")), ([FOWNER], lambda: os.removexattr(other, "system.posix_acl_access")),
        ([MKNOD], lambda: os.mknod(folder / "device", stat.S_IFCHR, os.makedev(1, 3))),
        ([SYS_ADMIN], lambda: os.setxattr(other, "trusted.x", b"")), ([SYS_ADMIN], lambda: os.setxattr(other, "security.x", b"")),
        ([SETFCAP], lambda: os.setxattr(other, "security.capability", struct.pack("<IIIII", 0x02000001, 1, 0, 0, 0))),
        ([], lambda: os.chown(other, 7, 7)))]


def protected(folder):
    """Links that a user makes to files of others, and names of others in a directory for all."""
    os.chmod(folder, 0o1777)
    os.close(file_of(folder))
    os.chmod(folder / "file", 0o600)
    os.mkfifo(folder / "fifo")
    os.chmod(folder / "fifo", 0o666)
    return [as_user(OTHER, lambda: os.link(folder / "file", folder / "second")), as_user(OTHER, lambda: os.symlink("file", folder / "link")),
            as_user(OTHER, lambda: os.close(os.open(folder / "fifo", os.O_CREAT | os.O_RDWR))), errors_of(lambda: os.stat(folder / "link").st_size)]


def removed_and_used(folder):
    fd = file_of(folder)
    os.unlink(folder / "file")
    seen = errors_of(
        lambda: os.fchmod(fd, 0o640), lambda: os.fchown(fd, 5, 6), lambda: os.ftruncate(fd, 100), lambda: os.setxattr(fd, "user.x", b"y"),
        lambda: os.listxattr(fd), lambda: os.utime(fd, (1, 1)), lambda: os.fsync(fd), lambda: os.posix_fallocate(fd, 0, 9999))
    now, again = os.fstat(fd), os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    with mmap.mmap(again, BLOCK) as memory:
        memory[0] = 9
    return seen, oct(now.st_mode), now.st_uid, now.st_gid, now.st_nlink, now.st_size, os.pread(fd, 1, 0)


def rights_of_an_open_file(folder):
    """A user's descriptor after root has taken the file away."""
    os.close(file_of(folder))
    os.chmod(folder / "file", 0o666)
    taken, report = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(OTHER, OTHER, OTHER)
            fd = os.open(folder / "file", os.O_RDWR)
            os.write(report[1], b"x")
            os.read(taken[0], 1)
            seen = errors_of(
                lambda: os.write(fd, b"y"), lambda: os.ftruncate(fd, 3), lambda: os.fsync(fd), lambda: os.posix_fallocate(fd, 0, 100),
                lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), lambda: os.fstat(fd).st_size, lambda: len(mmap.mmap(fd, 1)),
                lambda: os.copy_file_range(fd, fd, 1, 0, 50), lambda: os.fchmod(fd, 0o600), lambda: os.setxattr(fd, "user.x", b""))
            os.write(report[1], repr(seen).encode())
        finally:
            os._exit(0)
    os.close(report[1])
    os.read(report[0], 1)
    os.chmod(folder / "file", 0)
    os.write(taken[1], b"x")
    os.waitpid(child, 0)
    seen = os.read(report[0], 1000)
    assert seen, "the child failed"
    return seen


def moved_working_directory(folder):
    (folder / "a/b").mkdir(parents=True)
    (folder / "c").mkdir()
    os.chdir(folder / "a/b")
    os.rename(folder / "a/b", folder / "c/e")
    (folder / "c/e/file").touch()
    seen = [os.path.relpath(os.getcwd(), folder), os.listdir("."), os.path.samefile("..", folder / "c")]
    os.rename(folder / "c", folder / "z")
    os.mkdir("new")
    seen += [os.path.relpath(os.getcwd(), folder), sorted(os.listdir(folder / "z/e"))]
    os.chdir("/")
    return seen


def changing_listing(folder):
    """Names that stay while a listing runs are in it once; others come and go."""
    for i in range(2000):
        os.close(opened(folder / f"n{i}"))
    kept, listing = {f"n{i}" for i in range(0, 2000, 2)}, os.scandir(folder)
    seen = [next(listing).name for _ in range(10)]
    for i in range(1, 2000, 2):
        os.unlink(folder / f"n{i}")
        os.close(opened(folder / f"m{i}"))
    seen += [entry.name for entry in listing]
    return kept <= set(seen), sum(name in kept for name in seen), len(os.listdir(folder))


def databases(folder):
    """Two processes write one SQLite database with a log in shared memory."""
    base = sqlite3.connect(folder / "base")
    base.execute("pragma journal_mode=wal")
    base.execute("create table t (a)")
    words = [sys.executable, "-c", DATABASE, folder / "base"]
    writers = [subprocess.Popen(words) for _ in range(2)]
    ended = [writer.wait() for writer in writers]
    found = base.execute("select count(*) from t").fetchone(), base.execute("pragma integrity_check").fetchone()
    base.close()
    return ended, found


def stored_by_a_killed_process(folder):
    fd = file_of(folder)

    def store():
        memory = mmap.mmap(os.open(folder / "file", os.O_RDWR), BLOCK * 4)
        memory[:5] = b"child"

    with mmap.mmap(fd, BLOCK * 4) as memory:
        kill(process(store))
        return memory[:5], os.pread(fd, 5, 0)


def futex(folder):
    """A process waits on a word of a shared mapping and another one wakes it."""
    with mmap.mmap(file_of(folder), BLOCK) as memory:
        memory[:4] = bytes(4)
        word = ctypes.c_uint32.from_buffer(memory)
        at = ctypes.c_void_p(ctypes.addressof(word))
        child = os.fork()
        if child == 0:
            os._exit(libc.syscall(SYS_FUTEX, at, 0, 0, struct.pack("qq", 100, 0), 0, 0) & 255)
        ended = 0
        while not ended and libc.syscall(SYS_FUTEX, at, 1, 1, 0, 0, 0) == 0:
            time.sleep(0.001)
            ended, status = os.waitpid(child, os.WNOHANG)
        del word
        return status if ended else os.waitpid(child, 0)[1]


def program_by_descriptor(folder):
    (folder / "true").write_bytes(open("/bin/true", "rb").read())
    os.chmod(folder / "true", 0o711)
    fd = os.open(folder / "true", os.O_RDONLY)
    by_fd = as_user(0, lambda: os.execve(fd, ["true"], {}))
    os.close(fd)
    unreadable = as_user(OTHER, lambda: os.execv(folder / "true", ["true"]))
    os.chmod(folder / "true", 0o644)
    return by_fd, unreadable, errors_of(lambda: os.execv(folder / "true", ["true"]))


def modes_of_new_names(folder):
    before = os.umask(0)
    try:
        for mode in (0o7777, 0o2755, 0):
            os.mkdir(folder / f"d{mode}", mode)
            os.close(os.open(folder / f"f{mode}", os.O_CREAT | os.O_WRONLY, mode))
        os.mknod(folder / "node", stat.S_IFREG | 0o6755)
    finally:
        os.umask(before)
    return [(name, mode_of(folder / name)) for name in sorted(os.listdir(folder))]


FEATURES = {
    "pathconf: _PC_FILESIZEBITS": size_bits,
    "pwritev2: RWF_NOAPPEND": not_appended,
    "pwritev2: RWF_ATOMIC": atomic,
    "preadv2: RWF_DONTCACHE": lambda f: by_flags(SYS_PREADV2, file_of(f), b"abc", 0, RWF_DONTCACHE),
    "FS_IOC_GETFSUUID": uuid_length,
    "extent size hints (FS_IOC_FSSETXATTR)": extent_size,
    "file_setattr": attributes_by_path,
    "fanotify: a file system by handles": lambda f: marked(f, 0x200, 0x100, 2),
    "fanotify: events before an access": lambda f: marked(f, 8, 0, 0x100000),
    "epoll accepts a file": polled,
    "an unaligned read after fcntl(2) has set O_DIRECT": direct_later,
    "a write by root keeps the bits": written_by_root,
    "chown of neither owner nor group clears the bits": owned_by_nobody_else,
    "ACLs and set-group-id directories": acl_and_set_group_id,
    "an ACL by an owner outside the group clears set-group-id": acl_by_a_stranger,
    "a listing of ACLs": lambda f: listed(f, "system.posix_acl_access"),
    "a listing of ACLs without CAP_SYS_ADMIN": lambda f: listed(f, "trusted.SGI_ACL_FILE")[1],
    "a listing of ACLs as XFS stores them": lambda f: listed(f, "trusted.SGI_ACL_FILE")[0] == "done",
    "a listing of trusted.* without CAP_SYS_ADMIN": lambda f: listed(f, "trusted.other")[1],
    "copies of a tree": copies,
    "locks of a killed process": killed_holders,
    "locks and mappings of wrong descriptors": wrong_descriptors,
    "root without capabilities": powerless_root,
    "protected links": protected,
    "everything on a removed file": removed_and_used,
    "rights of an open file": rights_of_an_open_file,
    "a moved working directory": moved_working_directory,
    "a listing of 2,000 names that change": changing_listing,
    "SQLite by two processes": databases,
    "a mapping of a killed process": stored_by_a_killed_process,
    "a futex in a mapping": futex,
    "programs by descriptor, and without the right to read": program_by_descriptor,
    "modes of new names": modes_of_new_names,
}
