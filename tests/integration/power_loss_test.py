# SPDX-License-Identifier: Apache-2.0
"""The power is cut at a random moment. Afterwards the disk has everything that the journal calls durable, each promise
to a program holds, and the same command ends with the right tree."""

import hashlib
import json
import os
import subprocess
import tempfile

import pytest

from integration.lib.noise import noise
from integration.lib.power import CUTS, Machine, hashed_bucket, hashes
from paths import BUILD
from servers.bucket import KEYS, BucketServer

pytestmark = pytest.mark.timeout(600 + 150 * CUTS)
S3 = os.environ | KEYS
MIB = 1 << 20


@pytest.fixture
def machine(request):
    with tempfile.TemporaryDirectory(prefix="cistern-power-", dir="/var/tmp") as path:
        with Machine(path, request.node.name) as machine:
            yield machine


@pytest.fixture(scope="module")
def source():
    with hashed_bucket("d/s:500:20Ki", "d/l:2:17Mi") as server:
        yield server


def hydrate(source, *words):
    return [BUILD / "bin/cistern", "hydrate", "s3://bench/d/", *words, "--endpoint", source.url, "--barrier", "20ms",
            "--json"]


def summary(text):
    return next(json.loads(line) for line in text.splitlines() if '"summary"' in line)


@pytest.mark.parametrize("way", ["staged", "in place", "staged, to be durable", "in place, to be durable"])
def test_hydration_after_power_loss_resumes_from_durable_files(machine, source, way):
    kept, durable = 0, "durable" in way
    machine.on()
    for number, moment in enumerate(machine.moments(lambda: kept)):
        out = machine.disk / f"out{number}"
        # So slow that there are barriers while it runs.
        command = hydrate(source, out, "--bandwidth", "40M", *(["--fsync"] if durable else []))
        if "in place" in way:
            machine.run("mkdir", out)
        run = machine.start(*command, env=S3, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        promised = machine.cut_after(run, lambda: source.stats()["requests"], moment, len(source.want))
        machine.on()
        if promised and durable:
            assert hashes(machine.path(out)) == source.want, "it had said that all is done and durable"
        ended = machine.run(*command, env=S3)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert hashes(machine.path(out)) == source.want
        kept += moment <= 1 and summary(ended.stdout)["requests"] < len(source.want)
        machine.run("rm", "-r", out)
    assert kept, "no barrier saved anything: the test proves nothing"


def test_relist_after_power_loss_keeps_durable_files(machine):
    """With either of the two listings on the disk after the cut."""
    machine.on()
    for number, moment in enumerate(machine.moments()):
        out = machine.disk / f"out{number}"
        with hashed_bucket("d/s:300:20Ki") as source:
            command = hydrate(source, out, "--fsync")
            source.fault("op=get,every=30,times=10,do=change", "op=any,do=latency:5")
            assert machine.run(*command, env=S3).returncode != 0
            now = {key: hashlib.sha256(source.content("d/" + key)).hexdigest() for key in source.want}
            changed = {"d/" + key for key in now if now[key] != source.want[key]}
            assert len(changed) == 10
            met = len(source.ask("/_order").split())
            run = machine.start(*command, env=S3, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            machine.cut_after(run, lambda asked=source: asked.stats()["requests"], moment, len(changed))
            machine.on()
            ended = machine.run(*command, env=S3)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            assert hashes(machine.path(out)) == now
            assert {key.decode() for key in source.ask("/_order").split()[met:]} == changed
            machine.run("rm", "-r", out)


# ---- export ----------------------------------------------------------------------------------------------------------


def verdict(machine, state):
    """Its state word; None: it does not exist yet. An unreadable one is an error."""
    path = machine.path(state / "export/verdict.json")
    return json.loads(path.read_text())["state"] if path.exists() else None


def in_bucket(bucket, prefix, wanted):
    return all(hashlib.sha256(bucket.content(prefix + name)).hexdigest() == sum for name, sum in wanted.items())


def test_no_verdict_claims_what_the_bucket_has_not(machine):
    source = machine.disk / "source"
    machine.on()
    machine.run("mkdir", source)
    for i in range(40):
        machine.path(source / f"small-{i}").write_bytes(machine.dice.randbytes(500 * i))
    machine.path(source / "large").write_bytes(noise(machine.dice.random(), 20 * MIB + 7))
    wanted = hashes(machine.path(source))
    machine.run("sync")
    done = again = 0
    with BucketServer() as bucket:
        bucket.fault("op=put,every=2,do=latency:15")
        for number, moment in enumerate(machine.moments(lambda: again)):
            prefix, state = f"p{number}/", machine.disk / f"state{number}"
            command = [BUILD / "bin/cistern", "export", "--endpoint", bucket.url, "--path-style", "--state", state, source,
                       f"s3://bench/{prefix}"]
            run = machine.start(*command, env=S3, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            ended = machine.cut_after(run, lambda: bucket.stats()["put"], moment, len(wanted))
            machine.on()
            known = verdict(machine, state)
            assert known == "done" or not ended, "it had said that all is done"
            if known == "done":
                assert in_bucket(bucket, prefix, wanted)
                done += 1
            before = bucket.stats()["put"]
            finished = machine.run(*command, env=S3)
            assert finished.returncode == 0, finished.stdout + finished.stderr
            assert verdict(machine, state) == "done" and in_bucket(bucket, prefix, wanted)
            assert b"<Upload>" not in bucket.ask("/bench?uploads&prefix="), "an upload was left behind"
            again += 0 < bucket.stats()["put"] - before < len(wanted)
    assert done and again, f"{done} done, {again} went on: the moments prove nothing"
