# SPDX-License-Identifier: Apache-2.0
"""One user of a mount, as a process of its own: stress_worker.py KIND DIRECTORY ROUNDS SEED.

It works until its standard input ends, and at least for ROUNDS rounds. Everything it does must succeed, and it knows what
must be there afterwards. Its first line is "begins". Its last line is JSON: rounds, the longest round in
seconds, and errors."""

import json
import mmap
import os
import random
import select
import struct
import sys
import time
import zlib
from pathlib import Path

import stress_calls
import stress_programs
from stress_user import User

RECORD = struct.Struct("<QI52s")  # number, checksum, filling


def record(number):
    filling = random.Random(number).randbytes(52)
    return RECORD.pack(number, zlib.crc32(filling), filling)


def check_log(raw):
    assert len(raw) % RECORD.size == 0, "a torn record"
    numbers = []
    for number, checksum, filling in RECORD.iter_unpack(raw):
        assert zlib.crc32(filling) == checksum, "a record with wrong content"
        numbers.append(number)
    assert numbers == list(range(len(numbers))), "records lost, doubled or out of order"
    return len(numbers)


class Reader(User):
    """Whole files, by read and by mapping, opened and closed each time."""

    def once(self):
        name = self.chance.choice(sorted(os.listdir(self.top / "static")))
        path = self.top / "static" / name
        if self.chance.random() < 0.5:
            content = path.read_bytes()
        else:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
                content = bytes(mapping)
        assert zlib.crc32(content) == int(name), f"wrong content in {name}"


class Appender(User):
    """A log that is opened, appended to and closed; and at times kept open for a while."""

    def once(self):
        with open(self.home / "log", "ab", buffering=0) as log:
            for _ in range(self.chance.choice((1, 1, 1, 20))):
                assert log.write(record(self.number)) == RECORD.size
                self.number += 1

    def finish(self):
        assert check_log((self.home / "log").read_bytes()) == self.number


class Namer(User):
    """Creates, links, renames and removes; each must be done once and answered right."""

    def once(self):
        self.number += 1
        act = self.chance.choice((self.create, self.create, self.rename, self.unlink, self.folder, self.link, self.swap))
        act()

    def pick(self):
        return self.chance.choice(sorted(self.names)) if self.names else None

    def create(self):
        name = f"n{self.number}"
        content = os.urandom(self.chance.randrange(3000))
        fd = os.open(self.home / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        assert os.write(fd, content) == len(content)
        os.close(fd)
        self.names[name] = content

    def rename(self):
        name = self.pick()
        if name:
            os.rename(self.home / name, self.home / f"r{self.number}")
            self.names[f"r{self.number}"] = self.names.pop(name)

    def swap(self):
        one, two = self.pick(), self.pick()
        if one and not os.path.samefile(self.home / one, self.home / two):  # two names of one file both stay
            os.rename(self.home / one, self.home / two)
            self.names[two] = self.names.pop(one)

    def link(self):
        name = self.pick()
        if name:
            os.link(self.home / name, self.home / f"l{self.number}")
            self.names[f"l{self.number}"] = self.names[name]

    def unlink(self):
        name = self.pick()
        if name:
            with open(self.home / name, "rb") as file:
                os.unlink(self.home / name)
                assert file.read() == self.names.pop(name)

    def folder(self):
        path = self.home / f"d{self.number}"
        os.mkdir(path)
        os.symlink("x", path / "link")
        os.setxattr(path, "user.x", b"1", os.XATTR_CREATE)
        assert os.listdir(path) == ["link"]
        os.unlink(path / "link")
        os.rmdir(path)

    def finish(self):
        assert sorted(os.listdir(self.home)) == sorted(self.names)
        for name, content in self.names.items():
            assert (self.home / name).read_bytes() == content, name


USERS = {"reader": Reader, "appender": Appender, "namer": Namer}


def may_end():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main():
    kind, folder, least, seed = sys.argv[1:]
    user = (USERS | stress_calls.USERS | stress_programs.USERS)[kind](Path(folder), int(seed))
    print("begins", flush=True)
    rounds, longest, errors = 0, 0.0, []
    while not errors and (rounds < int(least) or not may_end()):
        began = time.monotonic()
        try:
            user.once()
        except Exception as error:
            errors.append(f"{user.me} in round {rounds}: {error!r}")
        longest = max(longest, time.monotonic() - began)
        rounds += 1
    if not errors:
        try:
            user.finish()
        except Exception as error:
            errors.append(f"{user.me} at its end: {error!r}")
    print(json.dumps({"user": user.me, "rounds": rounds, "longest": round(longest, 3), "errors": errors}))


main()
