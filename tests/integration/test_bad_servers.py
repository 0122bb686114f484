# SPDX-License-Identifier: Apache-2.0
"""Whatever a server does, a hydration ends in the right tree or in a sentence that names the object."""

import os
import pathlib
import re
import subprocess

import pytest

from servers.bucket import BUILD, BucketServer

pytestmark = pytest.mark.asan
SMALL, LARGE = 12, "20Mi"
TAKES_AT_MOST = 60


@pytest.fixture(scope="module", params=["s3", "gs"])
def server(request):
    with BucketServer("--objects", f"data/large/:1:{LARGE}", "--objects", f"data/small/:{SMALL}:1-50000") as running:
        running.scheme = request.param
        running.names = ["large/object-000000000"] + [f"small/object-{i:09}" for i in range(SMALL)]
        running.truth = {name: running.content("data/" + name) for name in running.names}
        yield running


@pytest.fixture(autouse=True)
def without_faults(server):
    server.no_faults()
    server.forget_stats()
    yield
    server.no_faults()


def hydrate(server, folder, *flags):
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "AWS_ACCESS_KEY_ID": "id",
           "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "ASAN_OPTIONS": "detect_leaks=0"}
    anonymous = ["--anonymous"] if server.scheme == "gs" else []
    return subprocess.run([BUILD / "bin/cistern", "hydrate", "--no-progress", "--endpoint", server.url, *anonymous,
                           *flags, f"{server.scheme}://bench/data/", folder], env=env, capture_output=True, text=True,
                          timeout=TAKES_AT_MOST)


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}


def assert_sentence(run, *words):
    """One line says what failed, with a stable id."""
    lines = [line for line in run.stderr.splitlines() if all(re.search(w, line) for w in words)]
    assert lines, f"no line with {words} in:\n{run.stderr}"
    assert re.search(r"CIS\d{4}", lines[0]), lines[0]


PASSING = [
    "op=get,nth=1,do=reset",
    "op=get,nth=1,do=reset:0",
    "op=get,nth=1,do=reset:1",
    "op=get,nth=3,do=reset:700",
    "op=get,key=data/large/*,nth=2,do=reset:3000000",
    "op=get,nth=1,do=truncate",
    "op=get,nth=2,do=truncate:0",
    "op=get,key=data/large/*,nth=1,do=truncate:5000000",
    "op=get,nth=1,times=3,do=status:500",
    "op=get,after=2,times=2,do=status:502",
    "op=get,every=4,times=4,do=status:503:1",
    "op=get,every=3,times=4,do=status:429:1",
    "op=get,key=data/small/*7,nth=1,do=corrupt:0",
    "op=get,key=data/large/*,nth=1,do=corrupt:123456",
    "op=get,key=data/small/*1,nth=1,do=garbage-body",
    "op=get,percent=20,times=10,do=reset:100",
    "op=get,key=data/small/*5,nth=1,do=slow:20000",
    "op=head,nth=1,do=reset",
    "op=head,nth=1,do=status:503:1",
    "op=list,nth=1,do=reset",
    "op=list,nth=1,do=reset:300",
    "op=list,nth=1,do=truncate:300",
    "op=list,nth=1,do=status:503:1",
    "op=list,nth=1,do=status:500",
    "op=list,nth=1,do=latency:500",
]


@pytest.mark.parametrize("rule", PASSING)
def test_a_passing_fault_ends_in_the_right_tree(server, tmp_path, rule):
    server.fault(rule)
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == 0, run.stderr
    assert tree(tmp_path / "out") == server.truth


# Rule, exit code, what the sentence says.
LASTING = [
    ("op=get,key=data/small/*4,do=corrupt:9", {1, 7}, ["small/object-000000004", "CIS1422"]),
    ("op=get,key=data/large/*,do=corrupt:9", {1, 7}, ["large/object-000000000", "CIS1422"]),
    ("op=get,key=data/small/*4,do=remove", {1, 3, 7}, ["small/object-000000004"]),
    ("op=get,key=data/small/*6,do=change", {1, 7}, ["small/object-000000006", "CIS1409"]),
    ("op=get,key=data/large/*,nth=2,do=change", {1, 7}, ["large/object-000000000", "CIS1409"]),
    ("op=get,key=data/small/*4,do=status:403", {1, 4}, ["small/object-000000004", "403|denied"]),
    ("op=get,key=data/small/*4,do=status:418", {1, 5}, ["small/object-000000004", "418"]),
    ("op=get,key=data/large/*,do=wrong-range", {1, 7}, ["large/object-000000000"]),
    ("op=get,key=data/large/*,do=other-range", {1, 7}, ["large/object-000000000"]),
    ("op=get,key=data/large/*,do=no-range", {1, 7}, ["large/object-000000000"]),
    ("op=get,key=data/small/*4,do=redirect:307:http://127.0.0.1:1/", {1, 5}, ["small/object-000000004", "307"]),
    ("op=get,key=data/small/*4,do=redirect:301:http://127.0.0.1:1/", {1, 5}, ["small/object-000000004", "301"]),
    ("op=get,key=data/small/*4,do=garbage", {1, 5, 7}, ["small/object-000000004"]),
    ("op=list,do=status:403", {4}, ["403|denied"]),
    ("op=list,do=status:404", {3}, ["404|not found|no such|does not exist"]),
    ("op=list,do=garbage-body", {1, 5, 7}, [""]),
    ("op=list,do=garbage-body:1000000", {1, 5, 7}, [""]),
    ("op=list,do=garbage", {1, 5, 7}, [""]),
    ("op=list,do=redirect:307:http://127.0.0.1:1/", {1, 2, 4, 5, 7}, ["307"]),
]


@pytest.mark.parametrize("rule, codes, words", LASTING)
def test_a_lasting_fault_ends_in_a_sentence(server, tmp_path, rule, codes, words):
    server.fault(rule)
    run = hydrate(server, tmp_path / "out", "--retries", "3")
    assert run.returncode in codes, run.stderr
    assert_sentence(run, *words)
    # What is there is right, whatever is not.
    for name, content in tree(tmp_path / "out").items():
        assert content == server.truth[name], name


def test_after_the_fault_the_same_command_ends_right(server, tmp_path):
    server.fault("op=get,key=data/small/*4,do=status:403", "op=get,key=data/large/*,nth=2,do=status:403")
    assert hydrate(server, tmp_path / "out", "--retries", "2").returncode != 0
    server.no_faults()
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == 0, run.stderr
    assert tree(tmp_path / "out") == server.truth


@pytest.mark.parametrize("rule", ["op=list,after=1,do=page-loop", "op=list,after=1,do=page-repeat"])
def test_a_listing_that_does_not_advance_is_an_error(server, tmp_path, rule):
    with BucketServer("--objects", "data/:3500:10") as many:
        many.scheme = server.scheme
        many.fault(rule)
        run = hydrate(many, tmp_path / "out")
        assert run.returncode in {1, 5, 7}, run.stderr
        assert_sentence(run, "list|page|token")
        assert many.stats()["list"] < 50


def test_a_certificate_of_nobody_known_is_refused_and_a_named_one_taken(tmp_path):
    certificate = tmp_path / "certificate.pem"
    with BucketServer("--objects", "data/:20:50Ki", "--tls", certificate) as secure:
        secure.scheme, secure.url = "s3", secure.url.replace("http:", "https:")
        refused = hydrate(secure, tmp_path / "out")
        assert refused.returncode == 4, refused.stderr
        assert_sentence(refused, "certificate", "CIS1613")
        taken = hydrate(secure, tmp_path / "out", "--ca-file", certificate)
        assert taken.returncode == 0, taken.stderr
        assert len(tree(tmp_path / "out")) == 20


def test_nobody_at_the_endpoint_is_said(tmp_path):
    with BucketServer("--objects", "data/:1:1") as gone:
        gone.scheme = "s3"
    run = hydrate(gone, tmp_path / "out", "--retries", "2")
    assert run.returncode == 5, run.stderr
    assert_sentence(run, "cannot connect to", "Connection refused", "CIS1611")
