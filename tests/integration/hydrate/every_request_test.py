# SPDX-License-Identifier: Apache-2.0
"""Each kind of request (a list page, a HEAD, a GET and a range, a PUT, the steps of a multipart, composed or resumable
upload), with each fault that a server has, at its Nth time: the run ends with every byte right, or in a sentence that
names the object; and the same command on a server that is well ends it.
CISTERN_FAIL_EVERY=1 fails every request; without it each fault meets one, drawn by CISTERN_SEED."""
import os
import pathlib
import random
import re
import subprocess

import pytest

from servers.bucket import BUILD, BucketServer

pytestmark = pytest.mark.timeout(1800)
EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SEED = int(os.environ.get("CISTERN_SEED", "1"))
FAULTS = ["reset", "reset:0", "reset:100", "stall", "stall:50", "truncate", "truncate:0", "truncate:100", "long:10",
          "long:10:silent", "wrong-length:3", "wrong-length:99999", "no-length", "wrong-range", "no-range", "other-range", "status:500",
          "status:502", "status:503", "status:503:1", "status:429", "status:403", "status:404", "status:412", "status:200",
          "redirect:307:http://127.0.0.1:1/", "redirect:301:http://127.0.0.1:1/", "garbage", "garbage:1000000",
          "garbage-body", "garbage-body:1000000", "corrupt", "corrupt:0", "checksum", "no-checksum", "lost", "slow:1"]
SIZES = {"large": (20 << 20) + 3, "empty": 0, "one": 1, "small/a b": 70_000, "small/é": 4096, "small/whole": 1 << 20}
QUICK = ["--retries", "3", "--stall", "500ms"]
MAY_END = {0, 1, 3, 4, 5, 7}


@pytest.fixture(scope="module")
def content():
    return {name: random.Random(name).randbytes(size) for name, size in SIZES.items()}


@pytest.fixture(scope="module", params=["s3", "gs"])
def server(request, content):
    with BucketServer() as running:
        running.scheme = request.param
        for name, data in content.items():
            running.put(f"in/{name}", data)
        yield running


@pytest.fixture(autouse=True)
def healed(server):
    yield
    server.no_faults()


def cistern(server, verb, *arguments):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
           "AWS_REGION": "us-east-1"} | {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
    words = [BUILD / "bin/cistern", verb, "--endpoint", server.url, *(["--anonymous"] if server.scheme == "gs" else []),
             *arguments]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=100, check=False)


def uri(server, prefix):
    return f"{server.scheme}://bench/{prefix}/"


class Hydrate:
    def __init__(self, server, folder, content):
        self.server, self.folder, self.content = server, folder, content

    def run(self, name, *flags):
        return cistern(self.server, "hydrate", "--quiet", *flags, uri(self.server, "in"), self.folder / name)

    def found(self, name):
        top = self.folder / name
        return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


class Export:
    def __init__(self, server, folder, content):
        self.server, self.folder, self.content = server, folder, content
        for name, data in content.items():
            (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "src" / name).write_bytes(data)

    def run(self, name, *flags):
        return cistern(self.server, "export", "--quiet", *flags, "--state", self.folder / f"state-{name}", self.folder / "src",
                       uri(self.server, self.prefix(name)))

    def prefix(self, name):
        return f"{self.folder.name}-{name}"

    def found(self, name):
        prefix = self.prefix(name) + "/"
        keys = [key[len(prefix):] for key in self.server.uploads() if key.startswith(prefix)]
        return {key: self.server.content(prefix + key) for key in keys}


class Ls:
    """Its names stand for the tree; a listing that failed shows no more than there is."""

    def __init__(self, server, folder, content):
        self.server, self.content, self.seen = server, {name: True for name in content}, {}

    def run(self, name, *flags):
        done = cistern(self.server, "ls", "-r", *flags, uri(self.server, "in"))
        self.seen[name] = {line: True for line in done.stdout.splitlines() if line}
        return done

    def found(self, name):
        return self.seen[name]


VERBS = [Hydrate, Export, Ls]


@pytest.fixture(scope="module")
def jobs(server, content, tmp_path_factory):
    """Each verb, and how many requests it takes on a fair day."""
    found = {}
    for verb in VERBS:
        job = verb(server, tmp_path_factory.mktemp(verb.__name__), content)
        server.forget_stats()
        assert job.run("whole").returncode == 0
        assert job.found("whole") == job.content
        found[verb] = job, server.stats()["requests"]
    return found


def meet(server, job, name, n, fault):
    server.fault(f"op=any,nth={n},do={fault}")
    run = job.run(name, *QUICK)
    told = f"{type(job).__name__}, {fault} at request {n}: exit {run.returncode}: {run.stderr}"
    assert run.returncode in MAY_END, told
    found = job.found(name)
    server.no_faults()
    if run.returncode == 0:
        assert found == job.content, told
        return
    named = [line for line in run.stderr.splitlines() if re.search(r"CIS\d{4}", line)]
    assert any(re.search(r"(s3|gs)://bench/|large|empty|one|small/", line) for line in named), told
    if not isinstance(job, Export):  # an upload whose answer is wrong may be there, but is not counted
        assert all(job.content.get(key) == data for key, data in found.items()), told
    again = job.run(name)
    assert again.returncode == 0, f"{told}\nthen: {again.stderr}"
    assert job.found(name) == job.content, told


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_any_one_request_is_outlived_or_named(server, jobs, fault):
    dice = random.Random(f"{SEED} {fault} {server.scheme}")
    for verb in VERBS if EVERY else [dice.choice(VERBS)]:
        job, total = jobs[verb]
        for n in range(1, total + 1, EVERY) if EVERY else [dice.randint(1, total)]:
            meet(server, job, f"{fault.replace('/', '')}-{n}", n, fault)
