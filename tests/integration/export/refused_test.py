# SPDX-License-Identifier: Apache-2.0
"""`cistern export` to a destination that takes no file: the run ends soon, and reports the cause a few times at most."""

import json
import os
import subprocess

import pytest

from paths import CISTERN
from servers.bucket import KEYS

FILES, REPORTED = 2000, 16


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/large").write_bytes(b"x" * (9 << 20))
    for i in range(FILES - 1):
        (tmp_path / "src" / f"many-{i}").write_bytes(b"x")
    return tmp_path


def export(bucket, folder, *flags, uri="s3://bench/p/", confined=()):
    return subprocess.run([*confined, CISTERN, "export", "--endpoint", bucket.url, "--path-style", "--state", folder / "state", *flags,
                           folder / "src", uri], capture_output=True, text=True, timeout=120, env=os.environ | KEYS)


def assert_ended_soon(bucket, folder, failed):
    v = json.loads((folder / "state/export/verdict.json").read_text())
    assert v["state"] == "failed" and v["failed"]["files"] == failed and v["pending"]["files"] == FILES - failed
    assert bucket.stats()["requests"] < 500


def assert_mended(bucket, folder):
    bucket.no_faults()
    done = export(bucket, folder)
    assert done.returncode == 0 and f"sent {FILES}, already there 0" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("fault, code, id", [("op=any,do=status:403", 4, "CIS1403"), ("op=any,do=status:503", 5, "CIS1429"),
                                             ("op=any,do=status:500", 5, "CIS1500"), ("op=any,do=status:507", 6, "CIS1427")],
                         ids=["denied", "throttled", "failing", "full"])
def test_a_cause_of_the_first_files_ends_the_run(bucket, folder, fault, code, id):
    bucket.fault(fault)
    done = export(bucket, folder, "--retries", "3")
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.count(id) == REPORTED and f"gave up after {REPORTED} failed files" in done.stderr, done.stderr
    assert_ended_soon(bucket, folder, REPORTED)
    assert_mended(bucket, folder)


def test_a_store_that_refuses_every_request_after_a_while_ends_the_run(bucket, folder):
    bucket.fault("op=put,after=50,do=status:503", "op=post,do=status:503")
    done = export(bucket, folder, "--retries", "3")
    assert done.returncode == 1 and f"gave up after {REPORTED} failed files" in done.stderr, (done.stdout, done.stderr)
    v = json.loads((folder / "state/export/verdict.json").read_text())
    # The end may come before the answers to the last of the 50.
    assert 0 < v["done"]["files"] <= 50 and v["pending"]["files"] > FILES / 2
    assert bucket.stats()["requests"] < 1000
    bucket.no_faults()
    assert export(bucket, folder).returncode == 0


@pytest.mark.parametrize("faults, uri, code, told", [
    ([], "s3://nobucket/p/", 3, ["404 NoSuchBucket: there is no bucket 'nobucket'", "CIS1405", "check the bucket"]),
    (["op=put,do=error:400:InvalidStorageClass", "op=post,do=error:400:InvalidStorageClass"], "s3://bench/p/", 2,
     ["400 InvalidStorageClass: the store has no storage class 'COLD'", "CIS1425", "correct --storage-class"]),
    (["op=any,do=reset"], "s3://bench/p/", 5, ["Connection reset by peer", "CIS1620", "write https://"]),
], ids=["bucket", "storage class", "unreachable"])
def test_a_cause_of_all_files_ends_the_run_at_once_and_is_reported_once(bucket, folder, faults, uri, code, told):
    bucket.fault(*faults)
    done = export(bucket, folder, "--storage-class", "COLD", uri=uri)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.count("CIS") == 1 and all(words in done.stderr for words in told), done.stderr
    assert_ended_soon(bucket, folder, 1)
    assert_mended(bucket, folder)


def test_files_that_may_not_be_read_do_not_keep_others_from_the_bucket(bucket, folder):
    denied = [folder / "src" / f"a-{i}" for i in range(2 * REPORTED)]
    for path in denied:
        path.write_bytes(b"x")
        path.chmod(0)
    done = export(bucket, folder, confined=["setpriv", "--bounding-set=-dac_override,-dac_read_search"])
    assert done.returncode == 1 and f"sent {FILES}, already there 0, failed {len(denied)}, not tried 0" in done.stdout, done.stdout
    assert all(f"cannot open '{path.name}': Permission denied" in done.stderr for path in denied), done.stderr


def sent(bucket, tmp_path, files, *rules):
    """Exports so many small files under the rules. Returns the output."""
    (tmp_path / "src").mkdir()
    for i in range(files):
        (tmp_path / "src" / f"many-{i}").write_bytes(b"x")
    bucket.fault(*rules)
    done = export(bucket, tmp_path)
    assert done.returncode == 0 and f"sent {files}, already there 0" in done.stdout, (done.stdout, done.stderr)
    return done.stdout


def test_writes_above_a_limit_of_the_store_are_few(bucket, tmp_path):
    """Without a rate of our own each file was refused more than once. At 20 a second, some were refused eight times, and not exported."""
    sent(bucket, tmp_path, 400, "op=put,do=limit:50")
    assert bucket.fired()[0] < 200  # 64 of them go out at once


def test_probe_of_conditions_is_repeated_after_a_refusal(bucket, tmp_path):
    """A HEAD preceded each write of the run, and the store was said to ignore If-None-Match."""
    output = sent(bucket, tmp_path, 1, "op=put,nth=2,do=status:503")
    assert bucket.fired() == [1] and bucket.stats()["put"] == 1 + 1 + 2
    assert "HEAD only" not in output, output


def test_an_export_that_sent_nothing_leaves_nothing_below_home(bucket, tmp_path):
    source, home = tmp_path / "src", tmp_path / "home"
    source.mkdir()

    def export_from_home(content):
        (source / "a").write_bytes(content)
        return subprocess.run([CISTERN, "export", "--endpoint", bucket.url, "--path-style", source, "s3://bench/p/"],
                              env={"HOME": str(home), **KEYS}, timeout=60, check=False, capture_output=True, text=True)

    bucket.fault("op=any,do=status:403")
    done = export_from_home(b"one")
    assert done.returncode == 4 and not home.exists(), done.stderr
    bucket.no_faults()
    assert export_from_home(b"one").returncode == 0
    bucket.fault("op=any,do=status:403")
    assert export_from_home(b"other").returncode == 4 and list(home.rglob("logbook-*")), "the next run needs the records"
