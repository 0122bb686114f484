# SPDX-License-Identifier: Apache-2.0
"""What the tests of `cistern hydrate` share: the program, sources of real files, trees to compare, our own server."""
import hashlib
import json
import os
import random
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

BUILD = Path(os.environ.get("CISTERN_BUILD", Path(__file__).resolve().parents[3] / "build"))
CISTERN = BUILD / "bin" / "cistern"
S3 = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}

DONE, SOME_FAILED, USAGE, NOT_FOUND, DENIED, TRANSIENT, NO_SPACE, MISMATCH, INTERRUPTED, EMPTY, ENVIRONMENT = range(11)


def cistern(*args, timeout=120, **environment):
    return subprocess.run([CISTERN, *map(str, args)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **S3, **environment}, check=False)


def summary(*args, **kwargs):
    """Runs with --json; gives the exit code, the summary and the errors."""
    done = cistern(*args, "--json", **kwargs)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    last = [line for line in lines if line["type"] == "summary"]
    return done.returncode, last[-1] if last else {}, [line for line in lines if line["type"] == "error"]


def tree(folder):
    """Every path below, with its bytes' hash; folders as such."""
    found = {}
    for path in sorted(Path(os.fsdecode(folder)).rglob("*")):
        name = os.fsencode(str(path.relative_to(folder)))
        found[name] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def files(folder):
    return {name: value for name, value in tree(folder).items() if value != "folder"}


def make_source(folder, small=300, large=((9 << 20) + 1, (1 << 20) + 1, 16 << 20), seed=1):
    dice = random.Random(seed)
    for i in range(small):
        path = folder / f"d{i % 7}" / f"s{i % 3}" / f"f{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(dice.choice([0, 1, 100, 4096, 70000, 1 << 20])))
    for i, size in enumerate(large):
        (folder / f"large{i}").write_bytes(dice.randbytes(size))
    return folder


class Bucket:
    """Our server of synthetic objects, with faults by rule."""

    def __init__(self, *objects, flags=()):
        command = [BUILD / "tests" / "bucket_server", "--die-with-parent"]
        for o in objects:
            command += ["--objects", o]
        self.child = subprocess.Popen([*map(str, command), *flags], stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self.child.stdout.readline().split()[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()

    def ask(self, path, method="GET", body=None):
        request = urllib.request.Request(self.url + path, method=method, data=None if body is None else body.encode())
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.read()

    def put(self, key, body):
        self.ask("/bench/" + urllib.parse.quote(key), "PUT", body)

    def fault(self, *rules):
        self.ask("/_fault", "POST", "\n".join(rules))

    def heal(self):
        self.ask("/_fault", "DELETE")

    def stats(self):
        return json.loads(self.ask("/_stats"))

    def hydrate(self, prefix, folder, *flags, **kwargs):
        return summary("hydrate", f"s3://bench/{prefix}", folder, "--endpoint", self.url, *flags, **kwargs)

    def objects_are_right(self, folder):
        """Every file has the bytes that the server gives for its key."""
        for path in Path(folder).rglob("*"):
            if path.is_file():
                key = path.relative_to(folder)
                assert path.read_bytes() == self.ask(f"/bench/{self.prefix}{key}"), key
        return True
