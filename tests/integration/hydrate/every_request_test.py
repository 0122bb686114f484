# SPDX-License-Identifier: Apache-2.0
"""Each kind of request with each fault of a server, at its Nth time. Requests are list pages, HEADs, GETs, ranges, PUTs
and the steps of an upload, also over TLS and of resumed runs. The run ends with every byte right, or with an error that
names the object. The same command on a healthy server completes it.
CISTERN_FAIL_EVERY=1 fails every request; without it each fault meets one, drawn by CISTERN_SEED."""
import os
import random
import re
import subprocess

import pytest

from integration.lib.buckets import clean_environment, contents
from integration.lib.noise import noise
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

pytestmark = pytest.mark.timeout(1800)
EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SEED = int(os.environ.get("CISTERN_SEED", "1"))
FAULTS = ["reset", "reset:0", "reset:100", "stall", "stall:50", "truncate", "truncate:0", "truncate:100", "long:10",
          "long:10:silent", "wrong-length:3", "wrong-length:99999", "no-length", "wrong-range", "no-range", "other-range", "status:500",
          "status:502", "status:503", "status:503:1", "status:429", "status:403", "status:404", "status:412", "status:200",
          "redirect:307:http://127.0.0.1:1/", "redirect:301:http://127.0.0.1:1/", "garbage", "garbage:1000000",
          "garbage-body", "garbage-body:1000000", "corrupt", "corrupt:0", "checksum", "no-checksum", "lost", "slow:1"]
SIZES = {"large": (20 << 20) + 3, "empty": 0, "one": 1, "small/a b": 70_000, "small/é": 4096, "small/whole": 1 << 20}
MANY = 2500
QUICK = ["--retries", "3", "--stall", "500ms"]
MAY_END = {0, 1, 3, 4, 5, 7}


@pytest.fixture(scope="module")
def content():
    return {name: noise(name, size) for name, size in SIZES.items()}


@pytest.fixture(scope="module")
def secured(content, tmp_path_factory):
    with BucketServer("--tls", tmp_path_factory.mktemp("tls") / "certificate.pem") as running:
        fill(running, content)
        yield running


@pytest.fixture(scope="module", params=["s3", "gs"])
def server(request, content, secured):
    with BucketServer("--objects", f"many/:{MANY}:100") as running:
        running.scheme = secured.scheme = request.param
        running.secured = secured
        fill(running, content)
        yield running


@pytest.fixture(autouse=True)
def healed(server, secured):
    yield
    server.no_faults()
    secured.no_faults()


def fill(server, content):
    for name, data in content.items():
        server.put(f"in/{name}", data)


def cistern(server, verb, *arguments):
    flags = [*(["--anonymous"] if server.scheme == "gs" else []),
             *(["--ca-file", server.certificate] if server.certificate else [])]
    return subprocess.run([CISTERN, verb, "--endpoint", server.url, *flags, *arguments], env=clean_environment(**KEYS),
                          capture_output=True, text=True, timeout=100, check=False)


def uri(server, prefix):
    return f"{server.scheme}://bench/{prefix}/"


# ---- what is asked for: each verb's way to run, and what there is to be seen of it ----------------------------------------


class Hydrate:
    def __init__(self, server, folder, content):
        self.server, self.folder, self.content = server, folder, content

    def prepare(self, name):
        """The state before the run, from a healthy server."""

    def run(self, name, *flags):
        return cistern(self.server, "hydrate", "--quiet", *flags, uri(self.server, "in"), self.folder / name)

    def found(self, name):
        return contents(self.folder / name)

    def keeps_its_word(self, found):
        """Of a run that failed: nothing wrong is there."""
        return all(self.content.get(key) == data for key, data in found.items())


class HydrateTls(Hydrate):
    def __init__(self, server, folder, content):
        super().__init__(server.secured, folder, content)


class Resume(Hydrate):
    """The requests that a store left undone when it began to refuse."""

    def prepare(self, name):
        self.server.fault("op=get,key=in/large,after=1,do=status:403")
        assert self.run(name, *QUICK).returncode != 0
        self.server.no_faults()


class Export:
    marker = []

    def __init__(self, server, folder, content):
        self.server, self.folder, self.content = server, folder, content
        for name, data in content.items():
            (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "src" / name).write_bytes(data)

    def prepare(self, name):
        pass

    def run(self, name, *flags):
        return cistern(self.server, "export", "--quiet", *flags, *self.marker, "--state", self.folder / f"state-{name}",
                       self.folder / "src", uri(self.server, self.prefix(name)))

    def prefix(self, name):
        return f"{self.folder.name}-{name}"

    def found(self, name):
        prefix = self.prefix(name) + "/"
        keys = [key[len(prefix):] for key in self.server.uploads() if key.startswith(prefix)]
        return {key: self.server.content(prefix + key) for key in keys}

    def keeps_its_word(self, found):
        return True  # an upload whose answer is wrong may be there, but is not counted


class ExportAgain(Export):
    """After one that died in its large upload; and what is marked as whole, is."""

    marker = ["--marker", "_SUCCESS"]

    def prepare(self, name):
        self.server.fault("op=any,key=*large*,after=2,do=status:403")
        self.run(name, *QUICK)
        self.server.no_faults()

    def found(self, name):
        found = super().found(name)
        whole = all(found.get(key) == data for key, data in self.content.items() if key.startswith("small/"))
        assert whole or "small/_SUCCESS" not in found
        return {key: data for key, data in found.items() if key != "small/_SUCCESS"}


class Ls:
    """Its names stand for the tree; a listing that failed shows no more than there is."""

    prefix = "in"

    def __init__(self, server, folder, content):
        self.server, self.content, self.seen = server, {name: True for name in content}, {}

    def prepare(self, name):
        pass

    def run(self, name, *flags):
        done = cistern(self.server, "ls", "-r", *flags, uri(self.server, self.prefix))
        self.seen[name] = {line: True for line in done.stdout.splitlines() if line}
        return done

    def found(self, name):
        return self.seen[name]

    def keeps_its_word(self, found):
        return found.items() <= self.content.items()


class LsPages(Ls):
    prefix = "many"

    def __init__(self, server, folder, content):
        super().__init__(server, folder, content)
        self.content = {line: True for line in cistern(server, "ls", "-r", uri(server, self.prefix)).stdout.splitlines()}
        assert len(self.content) == MANY


class Doctor:
    """The lines about the store. The lines about this machine have other tests."""

    def __init__(self, server, folder, content):
        self.server, self.content, self.seen = server, {"endpoint": True, "list": True, "read": True}, {}

    def prepare(self, name):
        pass

    def run(self, name, *flags):
        done = cistern(self.server, "doctor", *flags, uri(self.server, "in"))
        said = [line.split(maxsplit=2) for line in done.stdout.splitlines() if set(line.split()[1:2]) & set(self.content)]
        assert said, done
        self.seen[name] = {what: True for result, what, _ in said if result == "pass"}
        done.returncode = 0 if self.seen[name] == self.content else 1
        done.stderr = "\n".join(text for result, _, text in said if result != "pass")
        return done

    def found(self, name):
        return self.seen[name]

    def keeps_its_word(self, found):
        return True


VERBS = [Hydrate, HydrateTls, Resume, Export, ExportAgain, Ls, LsPages, Doctor]


@pytest.fixture(scope="module")
def jobs(server, content, tmp_path_factory):
    """Each verb, and how many requests it takes on a fair day."""
    found = {}

    def job_of(verb):
        if verb not in found:
            job = verb(server, tmp_path_factory.mktemp(verb.__name__), content)
            job.prepare("whole")
            job.server.forget_stats()
            done = job.run("whole")
            assert done.returncode == 0, done.stderr
            assert job.found("whole") == job.content
            found[verb] = job, job.server.stats()["requests"]
        return found[verb]
    return job_of


def meet(job, name, n, fault):
    job.prepare(name)
    job.server.fault(f"op=any,nth={n},do={fault}")
    run = job.run(name, *QUICK)
    told = f"{type(job).__name__}, {fault} at request {n}: exit {run.returncode}: {run.stderr}"
    assert run.returncode in MAY_END, told
    found = job.found(name)
    job.server.no_faults()
    if run.returncode == 0:
        assert found == job.content, told
        return
    named = [line for line in run.stderr.splitlines() if re.search(r"CIS\d{4}", line)]
    assert any(re.search(r"(s3|gs)://bench/|http://127|large|empty|one|small/", line) for line in named), told
    assert job.keeps_its_word(found), told
    again = job.run(name)
    assert again.returncode == 0, f"{told}\nthen: {again.stderr}"
    assert job.found(name) == job.content, told


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_any_one_request_is_outlived_or_named(server, jobs, fault):
    dice = random.Random(f"{SEED} {fault} {server.scheme}")
    for verb in VERBS if EVERY else [dice.choice(VERBS)]:
        job, total = jobs(verb)
        for n in range(1, total + 1, EVERY) if EVERY else [dice.randint(1, total)]:
            meet(job, f"{fault.replace('/', '')}-{n}", n, fault)
