# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of `cistern hydrate`: the program, sources of real files, trees to compare, the bucket server."""
import hashlib
import json
import os
import random
import subprocess
from pathlib import Path

from integration.lib.noise import noise
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

DONE, SOME_FAILED, USAGE, NOT_FOUND, DENIED, TRANSIENT, NO_SPACE, MISMATCH, INTERRUPTED, EMPTY, ENVIRONMENT = range(11)


def cistern(*args, timeout=240, **environment):
    return subprocess.run([CISTERN, *map(str, args)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **KEYS, **environment}, check=False)


def summary(*args, **kwargs):
    """Runs with --json; gives the exit code, the summary and the errors."""
    done = cistern(*args, "--json", **kwargs)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    last = [line for line in lines if line["type"] == "summary"]
    return done.returncode, last[-1] if last else {}, [line for line in lines if line["type"] == "error"]


def tree(folder):
    """Every path below, with its bytes' hash; directories as such."""
    found = {}
    for path in sorted(Path(os.fsdecode(folder)).rglob("*")):
        name = os.fsencode(str(path.relative_to(folder)))
        found[name] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def is_tidy(folder):
    """Nothing is left in and beside the directories that were filled but their records."""
    left = [p for p in Path(folder).rglob("*") if p.parent.name.endswith(".cistern") or p.name == ".cistern-hydrate"]
    return all(p.parent.name.startswith(".") and p.name in ("catalog", "journal", "hydrate.lock", "status.json") for p in left)


def files(folder):
    return {name: value for name, value in tree(folder).items() if value != "folder"}


def make_source(folder, small=300, large=((9 << 20) + 1, (1 << 20) + 1, 16 << 20), seed=1):
    dice = random.Random(seed)
    for i in range(small):
        path = folder / f"d{i % 7}" / f"s{i % 3}" / f"f{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise(dice.random(), dice.choice([0, 1, 100, 4096, 70000, 1 << 20])))
    for i, size in enumerate(large):
        (folder / f"large{i}").write_bytes(noise(dice.random(), size))
    return folder


class Bucket(BucketServer):
    """Synthetic objects, given as "PREFIX:COUNT:SIZE" each, and hydrations of them."""

    def __init__(self, *objects, flags=()):
        super().__init__(*(word for o in objects for word in ("--objects", o)), *flags)

    def hydrate(self, prefix, folder, *flags, scheme="s3", **kwargs):
        access = ("--anonymous",) if scheme == "gs" else ()
        return summary("hydrate", f"{scheme}://bench/{prefix}", folder, "--endpoint", self.url, *access, *flags, **kwargs)

    def objects_are_right(self, folder):
        """Every file has the bytes that the server gives for its key."""
        for path in Path(folder).rglob("*"):
            if path.is_file():
                key = path.relative_to(folder)
                assert path.read_bytes() == self.content(f"{self.prefix}{key}"), key
        return True
