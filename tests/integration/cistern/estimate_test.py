# SPDX-License-Identifier: Apache-2.0
"""A dry run reports objects, bytes, requests, time and price before it fetches or sends; the requests are those of the run.
A finished export reports what it sent and what was there."""
import json
import os
import subprocess

import pytest

from integration.lib.buckets import clean_environment
from paths import CISTERN
from servers import minio

SIZES = {"empty": 0, "a/small": 1000, "a/one-get": 8 << 20, "b/parts": (20 << 20) + 1}


@pytest.fixture
def folder(tmp_path):
    for name, size in SIZES.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return tmp_path / "data"


@pytest.fixture
def run(minio_server, tmp_path):
    env = clean_environment(AWS_ACCESS_KEY_ID=minio.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=minio.SECRET_KEY, AWS_REGION=minio.REGION,
                            AWS_ENDPOINT_URL=minio_server.url, HOME=str(tmp_path))

    def cistern(*words):
        done = subprocess.run([CISTERN, *map(str, words)], env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done

    return cistern


def summary(done):
    return json.loads(done.stdout.splitlines()[-1])


def requests(done):
    """The requests of --log-level debug: those of the cheap kind, and of the others."""
    lines = [line for line in done.stderr.splitlines() if "event=request" in line]
    writes = [line for line in lines if "operation=LIST" in line or "method=PUT" in line or "method=POST" in line]
    return len(lines) - len(writes), len(writes)


def test_a_dry_hydration_reports_the_requests_that_the_run_makes(folder, run, tmp_path):
    run("export", folder, f"s3://{minio.EXAMPLE_BUCKET}/in/")
    told = summary(run("hydrate", f"s3://{minio.EXAMPLE_BUCKET}/in/", tmp_path / "out", "--dry-run", "--json"))
    assert told["found"] == len(SIZES) and told["bytes"] == sum(SIZES.values())
    assert not (tmp_path / "out").exists()
    made = requests(run("hydrate", f"s3://{minio.EXAMPLE_BUCKET}/in/", tmp_path / "out", "--log-level", "debug"))
    assert (told["read_requests"], told["write_requests"]) == made


def test_a_dry_export_reports_the_requests_that_the_run_makes(folder, run):
    told = summary(run("export", folder, f"s3://{minio.EXAMPLE_BUCKET}/out/", "--dry-run", "--json"))
    done = run("export", folder, f"s3://{minio.EXAMPLE_BUCKET}/out/", "--log-level", "debug")
    reads, writes = requests(done)
    writes -= done.stderr.count("operation=PROBE")
    assert told["write_requests"] == writes
    assert told["read_requests"] in (reads, reads - 1)  # MinIO is asked again before an upload of parts ends


def test_the_price_and_the_time_follow_the_flags(folder, run, tmp_path):
    run("export", folder, f"s3://{minio.EXAMPLE_BUCKET}/price/")
    words = ["hydrate", f"s3://{minio.EXAMPLE_BUCKET}/price/", tmp_path / "out", "--dry-run"]
    text = run(*words, "--price-read", "100000000", "--price-write", "300000000", "--bandwidth", "1Mi").stdout
    # Five GETs and two HEADs at one dollar, one LIST at three.
    assert "estimate: 7 GET and HEAD, 1 PUT, POST and LIST requests; at least 28.0 s (1.00 MiB/s, " in text
    assert "; 10.00 USD for requests (100000000 and 300000000 cents a million)" in text
    assert "less than 0.01 USD for requests (40 and 500 cents a million)" in run(*words).stdout


def test_a_directory_has_no_price(folder, run, tmp_path):
    text = run("hydrate", f"file://{folder}/", tmp_path / "out", "--dry-run").stdout
    assert "estimate:" in text and "USD" not in text


def test_an_export_reports_sent_already_there_and_failed(folder, run):
    first = run("export", folder, f"s3://{minio.EXAMPLE_BUCKET}/twice/").stdout
    assert "done: sent 4, already there 0, failed 0, not tried 0, skipped 0; 28.0 MiB in " in first
    (folder / "a/small").write_bytes(b"other")
    (folder / "new").write_bytes(b"new")
    second = run("export", folder, f"s3://{minio.EXAMPLE_BUCKET}/twice/").stdout
    assert "done: sent 2, already there 3, failed 0, not tried 0, skipped 0; 8 B in " in second
    told = summary(run("export", folder, f"s3://{minio.EXAMPLE_BUCKET}/twice/", "--json"))
    assert (told["sent"], told["there"], told["failed"]) == (0, 5, 0)
