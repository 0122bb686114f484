# SPDX-License-Identifier: Apache-2.0
"""Users of a mount for stress_worker.py: each knows one group of system calls, and a model of the result."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct

from stress_user import User

BLOCK, BLOCKS = 4096, 64
PUNCH, ZERO = 3, 16
libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def renameat2(old, new, flags):
    checked(libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


class Model(User):
    """A file, and its bytes as they must be."""

    flags = os.O_RDWR

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.path, self.bytes = self.home / "file", bytearray()
        self.fd = os.open(self.path, self.flags | os.O_CREAT, 0o644)

    def again(self):
        """At times the file is closed and opened again."""
        if self.chance.random() < 0.3:
            os.close(self.fd)
            self.fd = os.open(self.path, self.flags)

    def put(self, at, data):
        self.bytes.extend(bytes(max(0, at + len(data) - len(self.bytes))))
        self.bytes[at : at + len(data)] = data

    def check(self):
        assert self.path.stat().st_size == os.fstat(self.fd).st_size == len(self.bytes), "another size"
        assert self.path.read_bytes() == self.bytes, "other bytes"

    def finish(self):
        self.check()


class Mapper(Model):
    """Stores into a shared mapping, which stays over several kills; reads see them."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        os.ftruncate(self.fd, BLOCK * BLOCKS)
        self.put(0, bytes(BLOCK * BLOCKS))
        self.memory = mmap.mmap(self.fd, BLOCK * BLOCKS)

    def once(self):
        for _ in range(20):
            at, data = self.chance.randrange(BLOCK * BLOCKS - 100), self.chance.randbytes(100)
            if self.chance.random() < 0.5:
                self.memory[at : at + 100] = data
            else:
                assert os.pwrite(self.fd, data, at) == 100
            self.put(at, data)
        if self.chance.random() < 0.2:
            self.memory.flush()
        if self.chance.random() < 0.2:  # the mapping outlives its descriptor
            self.memory.close()
            self.again()
            self.memory = mmap.mmap(self.fd, BLOCK * BLOCKS)
        self.check()


class Direct(Model):
    """O_DIRECT."""

    flags = os.O_RDWR | os.O_DIRECT

    def once(self):
        self.again()
        with mmap.mmap(-1, BLOCK * 4) as page:
            at, page[:] = self.chance.randrange(BLOCKS) * BLOCK, self.chance.randbytes(BLOCK * 4)
            assert os.pwritev(self.fd, [page], at) == BLOCK * 4
            self.put(at, page[:])
            page[:] = bytes(BLOCK * 4)
            assert os.preadv(self.fd, [page], at) == BLOCK * 4
            assert page[:] == self.bytes[at : at + BLOCK * 4], "other bytes"
        if self.chance.random() < 0.1:
            self.check()


class Holes(Model):
    """Holes, zeros, truncation, SEEK_DATA."""

    def once(self):
        self.again()
        at, length = (self.chance.randrange(BLOCKS) * BLOCK for _ in range(2))
        length += BLOCK
        act = self.chance.randrange(5)
        if act == 0:
            assert os.pwrite(self.fd, data := self.chance.randbytes(length), at) == length
            self.put(at, data)
        elif act == 1:
            checked(libc.fallocate(self.fd, PUNCH, ctypes.c_long(at), ctypes.c_long(length)))
            if at < len(self.bytes):
                self.put(at, bytes(min(length, len(self.bytes) - at)))
        elif act == 2:
            checked(libc.fallocate(self.fd, ZERO, ctypes.c_long(at), ctypes.c_long(length)))
            self.put(at, bytes(length))
        elif act == 3:
            size = self.chance.randrange(BLOCK * BLOCKS)
            os.ftruncate(self.fd, size) if self.chance.random() < 0.5 else os.truncate(self.path, size)
            self.put(size, b"")
            del self.bytes[size:]
        else:
            self.seek()
        self.check()

    def seek(self):
        try:
            data = os.lseek(self.fd, 0, os.SEEK_DATA)
            assert not any(self.bytes[:data]), "data in a hole"
        except OSError as e:
            assert e.errno == errno.ENXIO and not any(self.bytes), e


class Copier(Model):
    """copy_file_range, sendfile and splice from one part of a file to another file."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.source, self.content = self.home / "source", self.chance.randbytes(BLOCK * BLOCKS)
        self.source.write_bytes(self.content)

    def once(self):
        self.again()
        at, to, length = (self.chance.randrange(BLOCK * BLOCKS // 2) for _ in range(3))
        act, done = self.chance.randrange(3), 0
        with open(self.source, "rb") as source:
            while done < length:
                if act == 0:
                    n = os.copy_file_range(source.fileno(), self.fd, length - done, at + done, to + done)
                elif act == 1:
                    os.lseek(self.fd, to + done, os.SEEK_SET)
                    n = os.sendfile(self.fd, source.fileno(), at + done, length - done)
                else:
                    n = self.spliced(source.fileno(), at + done, to + done, length - done)
                assert n > 0
                done += n
        self.put(to, self.content[at : at + length]) if length else None
        self.check()

    def spliced(self, source, at, to, length):
        out, into = os.pipe()
        try:
            n = os.splice(source, into, min(length, BLOCK * 16), offset_src=at)
            done = 0
            while done < n:
                done += os.splice(out, self.fd, n - done, offset_dst=to + done)
            return n
        finally:
            os.close(out)
            os.close(into)


class Locker(User):
    """Counts in a file that all lockers share, under flock(2) or fcntl(2): no count is lost."""

    SLOTS = 16

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.path, self.slot, self.count = folder / "counts", seed % self.SLOTS, 0

    def lock(self, fd):
        fcntl.flock(fd, fcntl.LOCK_EX)

    def once(self):
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self.lock(fd)
            size = 8 * (self.SLOTS + 1)
            counts = list(struct.unpack(f"{self.SLOTS + 1}Q", os.pread(fd, size, 0).ljust(size, b"\0")))
            assert counts[-1] == sum(counts[:-1]) and counts[self.slot] == self.count, "a lost count"
            counts[self.slot] += 1
            assert os.pwrite(fd, struct.pack("Q", counts[self.slot]), 8 * self.slot) == 8
            assert os.pwrite(fd, struct.pack("Q", counts[-1] + 1), 8 * self.SLOTS) == 8
            self.count += 1
        finally:
            os.close(fd)


class RangeLocker(Locker):
    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.path = folder / "counts by range"

    def lock(self, fd):
        fcntl.lockf(fd, fcntl.LOCK_EX, 8)


class Nameless(User):
    """Files without a name: O_TMPFILE that gets one, and removed files that stay open over several kills."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.open = []

    def once(self):
        self.number += 1
        fd = os.open(self.home, os.O_TMPFILE | os.O_RDWR, 0o600)
        content = self.chance.randbytes(1000)
        assert os.write(fd, content) == 1000
        if self.chance.random() < 0.5:
            name = self.home / f"n{self.number}"
            checked(libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, os.fsencode(name), 0x400))  # follows the link
            assert name.read_bytes() == content
            os.unlink(name)
        self.open.append((fd, content))
        if len(self.open) > 20:
            fd, content = self.open.pop(self.chance.randrange(20))
            assert os.fstat(fd).st_nlink == 0
            os.fchmod(fd, 0o640)
            again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
            assert os.pread(fd, 2000, 0) == os.read(again, 2000) == content
            os.close(again)
            os.close(fd)


class Attributes(User):
    """Modes, owners, times, extended attributes, ACLs: each is read back."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.path, self.values = self.home / "file", {}
        self.path.write_text("x")

    def once(self):
        self.number += 1
        mode, owner, at = self.chance.randrange(0o1000), self.chance.randrange(1000), self.chance.randrange(1 << 32)
        os.chown(self.path, owner, owner + 1)
        os.chmod(self.path, mode)
        os.utime(self.path, ns=(at, at + 1))
        seen = os.stat(self.path)
        assert (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid) == (mode, owner, owner + 1)
        assert (seen.st_atime_ns, seen.st_mtime_ns) == (at, at + 1)
        name, value = f"user.n{self.chance.randrange(8)}", self.chance.randbytes(self.chance.choice((1, 100, 300)))
        if name in self.values and self.chance.random() < 0.5:
            os.removexattr(self.path, name)
            del self.values[name]
        else:
            os.setxattr(self.path, name, value, os.XATTR_REPLACE if name in self.values else os.XATTR_CREATE)
            self.values[name] = value
        assert {n: os.getxattr(self.path, n) for n in os.listxattr(self.path)} == self.values

    def finish(self):
        assert {n: os.getxattr(self.path, n) for n in os.listxattr(self.path)} == self.values


class Mover(User):
    """Moves directories, exchanges names, replaces files as editors do, lists all of it."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.files = {}
        for name in "abc":
            (self.home / name).mkdir()
            (self.home / name / "inside").mkdir()

    def once(self):
        self.number += 1
        one, two = self.chance.sample("abc", 2)
        act = self.chance.randrange(5)
        if act == 0:
            renameat2(self.home / one, self.home / two, 2)  # exchange
        elif act == 1:
            os.rename(self.home / one / "inside", self.home / two / f"moved-{self.number}")
            os.rename(self.home / two / f"moved-{self.number}", self.home / one / "inside")
        elif act == 2:
            path = self.home / one / "inside" / "new"
            with open(path, "wb") as file:
                file.write(content := self.chance.randbytes(100))
                os.fsync(file.fileno())
            os.rename(path, self.home / "replaced")
            self.files["replaced"] = content
        elif act == 3:
            with contextlib.suppress(FileExistsError):
                renameat2(self.home / one / "inside", self.home / two, 1)  # no replacement
                raise AssertionError("replaced a directory")
        else:
            name = f"l{self.number % 7}"
            if name in self.files:
                os.unlink(self.home / name)
                del self.files[name]
            elif "replaced" in self.files:
                os.link(self.home / "replaced", self.home / name)
                self.files[name] = self.files["replaced"]
        assert sorted(os.listdir(self.home)) == sorted([*"abc", *self.files])
        assert [os.listdir(self.home / n) for n in "abc"] == [["inside"]] * 3

    def finish(self):
        for name, content in self.files.items():
            assert (self.home / name).read_bytes() == content, name


class Lister(User):
    """A directory of 2,000 names, listed while others are made and removed in it."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.kept = {f"a name that stays, number {i}" for i in range(2000)}
        for name in self.kept:
            (self.home / name).touch()

    def once(self):
        self.number += 1
        seen = []
        with os.scandir(self.home) as entries:
            for n, entry in enumerate(entries):
                seen.append(entry.name)
                if n % 500 == 0:
                    (self.home / f"passing-{self.number}-{n}").touch()
        for name in os.listdir(self.home):
            if name.startswith("passing"):
                os.unlink(self.home / name)
        kept = [name for name in seen if not name.startswith("passing")]
        assert len(kept) == len(set(kept)) and set(kept) == self.kept, "a name is missing, or twice in a listing"


USERS = {"mapper": Mapper, "direct": Direct, "holes": Holes, "copier": Copier, "locker": Locker, "range locker": RangeLocker,
         "nameless": Nameless, "attributes": Attributes, "mover": Mover, "lister": Lister}
