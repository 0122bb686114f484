# SPDX-License-Identifier: Apache-2.0
"""cistern doctor, on this very machine and against a store whose clock is off."""
import json
import os
import signal
import subprocess
from email.utils import formatdate
from pathlib import Path
from time import time

import pytest

from paths import BUILD
from servers.answering import Answering
from servers.bucket import KEYS


def doctor(*flags, code=0):
    done = subprocess.run([BUILD / "bin/cistern", "doctor", "--json", *flags], capture_output=True, text=True,
                          timeout=60, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == code, done.stdout + done.stderr
    assert lines[-1]["type"] == "summary"
    assert sum(lines[-1][result] for result in ("pass", "warn", "fail")) == len(lines) - 1
    return lines[:-1]


def result(lines, check):
    return [line["result"] for line in lines if line["check"] == check]


@pytest.fixture
def pool():
    """On a real disk: FUSE passthrough does not work on a stacked file system."""
    path = Path(f"/var/tmp/cistern-doctor-test-{os.getpid()}")
    path.mkdir()
    yield path
    subprocess.run(["rm", "-rf", path], check=True)


@pytest.fixture
def store():
    """A store that lists one empty page, at whatever time its `skew` makes of now."""
    def answer(request):
        if "prefix/" in request.path and "prefix=" not in request.path:
            return (403, {}, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>") if server.denies_missing else \
                (404, {}, b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>")
        page = b"<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
        return 403 if request.method == "HEAD" else 200, {"date": formatdate(time() + server.skew, usegmt=True)}, page

    with Answering(answer) as server:
        server.skew, server.denies_missing = 0, False
        yield server


@pytest.mark.asan
def test_the_machine_that_runs_the_tests_is_fit(pool):
    lines = doctor("--pool", str(pool))
    for check in ("kernel", "privileges", "io_uring", "fuse", "backend"):
        assert result(lines, check) == ["pass"], lines
    assert result(lines, "pool") == ["pass"]


def test_it_says_of_a_pool_what_the_driver_would(pool):
    said = next(line for line in doctor("--pool", f"{pool},require-mount", code=10) if line["check"] == "pool")
    assert said["result"] == "fail" and "CIS2043" in said["message"] and str(pool) in said["message"]
    (pool / "thesis.txt").write_text("x")
    said = next(line for line in doctor("--pool", str(pool), code=10) if line["check"] == "pool")
    assert said["result"] == "fail" and "CIS2021" in said["message"]
    said = next(line for line in doctor("--pool", f"{pool},requiremount", code=10) if line["check"] == "pool")
    assert said["result"] == "fail" and "'requiremount' is not an option" in said["message"]


def test_it_leaves_nothing_behind(pool):
    # In a mount namespace of its own, since other tests mount and unmount. A mount ends here, too, if they remove its
    # directory, and its path or options change here if they change there: IDs and devices are compared.
    look = "cat /proc/self/mountinfo"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", f'{look} && echo -- && "$@" >&2 && echo -- && {look}', "sh",
                           BUILD / "bin/cistern", "doctor", "--pool", pool], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after = ({tuple(line.split()[:3]) for line in part.splitlines()} for part in done.stdout.split("--\n")[::2])
    assert before and not after - before
    assert list(pool.iterdir()) == []


def test_a_pool_that_is_not_there_fails_with_exit_code_10():
    lines = doctor("--pool", "/nowhere", code=10)
    assert result(lines, "pool") == ["fail"] and "CIS2048" in next(line for line in lines if line.get("check") == "pool")["message"]
    assert result(lines, "fuse") == ["pass"], "a mount is tried elsewhere"


def test_a_pool_says_who_it_is_and_a_garbled_one_is_named(pool):
    identity = {"version": 1, "uuid": "0123456789ab", "pool": "default", "node": "elsewhere", "createdAt": "2026-11-21T09:30:00.000Z"}
    (pool / "cistern.json").write_text(json.dumps(identity))
    lines = doctor("--pool", str(pool))
    assert result(lines, "pool") == ["warn"]
    assert "0123456789ab" in str(lines) and "elsewhere" in str(lines)
    (pool / "cistern.json").write_text('{"uuid":')
    lines = doctor("--pool", str(pool), code=10)
    assert result(lines, "pool") == ["fail"]


def test_without_privileges_it_warns_and_the_mount_fails():
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
                           BUILD / "bin/cistern", "doctor", "--json"], capture_output=True, text=True, timeout=60,
                          check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    assert done.returncode == 10
    assert result(lines, "privileges")[0] == "warn" and result(lines, "fuse") == ["fail"]


def source_flags(store):
    return ["s3://bucket/prefix/", "--endpoint", store.url, "--anonymous"]


def test_a_store_that_answers_at_our_time_passes(store):
    lines = doctor(*source_flags(store))
    assert result(lines, "endpoint") == result(lines, "clock") == result(lines, "list") == result(lines, "read") == ["pass"]


def test_a_denied_read_of_a_missing_object_proves_nothing(store):
    """S3 denies it to a policy such as deploy/permissions/s3-source.json, which lets only some prefixes be listed."""
    store.denies_missing = True
    read, = (line for line in doctor(*source_flags(store)) if line["check"] == "read")
    assert read["result"] == "warn" and "no object is there" in read["message"], read


@pytest.mark.parametrize("skew, outcome, code", [(-120, "warn", 0), (120, "warn", 0), (-900, "fail", 10),
                                                 (900, "fail", 10)])
def test_a_clock_that_is_off_is_measured(store, skew, outcome, code):
    store.skew = skew
    lines = [line for line in doctor(*source_flags(store), code=code) if line["check"] == "clock"]
    assert [line["result"] for line in lines] == [outcome]
    assert "CIS1901" in lines[0]["message"]
    assert ("behind" if skew > 0 else "ahead") in lines[0]["message"]
    seconds = int(lines[0]["message"].split(" s ")[0].split()[-1])
    assert abs(seconds - abs(skew)) <= 2


def test_a_store_that_is_not_there_fails():
    lines = doctor("s3://bucket/", "--endpoint", "http://127.0.0.1:1", "--anonymous", code=10)
    assert result(lines, "endpoint") == ["fail"]


@pytest.mark.asan
def test_doctor_reads_a_directory_as_source(tmp_path):
    (tmp_path / "file").write_text("content")
    assert [result(doctor(f"file://{tmp_path}/"), check) for check in ("list", "read")] == [["pass"], ["pass"]]
    assert result(doctor("file:///nowhere/at/all/", code=10), "list") == ["fail"]


@pytest.mark.asan
def test_doctor_exports_to_a_directory_and_leaves_nothing(tmp_path):
    lines = doctor(f"file://{tmp_path}/", "--as-export")
    assert [result(lines, check) for check in ("list", "write", "read", "delete")] == [["pass"]] * 4
    assert list(tmp_path.iterdir()) == []


class Bucket:
    """Answers the requests of an export, and sends a signal when the request `at` is under way."""

    def __init__(self, at, number):
        self.at, self.number, self.child = at, number, None
        self.objects, self.uploads = set(), set()

    def __call__(self, request):
        key, _, query = request.path.partition("?")
        kind = f"{request.method} {query.partition('=')[0]}".strip()
        if kind == self.at:
            self.child.send_signal(self.number)
        if kind == "POST uploads":
            self.uploads.add(key)
            return 200, {}, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
        if kind == "DELETE uploadId":
            self.uploads.discard(key)
        elif kind == "DELETE":
            self.objects.discard(key)
        elif kind == "PUT":
            self.objects.add(key)
            return 200, {"etag": '"e"'}, b""
        elif kind == "GET uploads" or "uploads=" in query:
            return 200, {}, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>"
        elif kind == "GET list-type" or "list-type=" in query:
            return 200, {}, b"<ListBucketResult></ListBucketResult>"
        elif kind.startswith("GET"):
            return 206, {"etag": '"e"', "content-range": "bytes 0-0/1"}, b"\n"
        return 204, {}, b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("at", ["POST uploads", "PUT"])
def test_an_interrupted_doctor_leaves_nothing_in_the_bucket(at, number):
    bucket = Bucket(at, number)
    with Answering(bucket) as server:
        child = bucket.child = subprocess.Popen(
            [BUILD / "bin/cistern", "doctor", "s3://bucket/run/", "--as-export", "--endpoint", server.url, "--path-style"],
            env=os.environ | KEYS, stdout=subprocess.PIPE, text=True,
            # This test may be part of a shell's background job, which ignores SIGINT, or of nohup, which ignores SIGHUP.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
        said, _ = child.communicate(timeout=60)
        asked = [f"{r.method} {r.path}" for r in server.seen]
    assert child.returncode == -number, said
    assert (bucket.objects, bucket.uploads) == (set(), set()), asked
    assert any(a.startswith(at.split()[0]) for a in asked), asked


def test_a_signal_that_the_caller_blocked_ends_no_doctor(tmp_path):
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    done = subprocess.run([BUILD / "bin/cistern", "doctor", f"file://{tmp_path}/", "--as-source"], capture_output=True, text=True,
                          timeout=60, check=False, preexec_fn=block)
    assert done.returncode == 0, done.stdout + done.stderr


def test_doctor_names_a_missing_file(tmp_path):
    (tmp_path / "file").write_text("content")
    assert result(doctor(f"file://{tmp_path}/file"), "read") == ["pass"]
    said = next(line for line in doctor(f"file://{tmp_path}/fil", code=10) if line["check"] == "list")
    assert said["result"] == "fail" and "CIS1405" in said["message"]


def credentials(store, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")} | environment
    done = subprocess.run([BUILD / "bin/cistern", "doctor", "--json", "s3://bucket/prefix/", "--endpoint", store.url], env=env,
                          capture_output=True, text=True, timeout=60, check=False)
    return [line["message"] for line in map(json.loads, done.stdout.splitlines()) if line.get("check") == "credentials"]


def test_doctor_shows_the_sources_of_credentials_that_it_skipped(store, tmp_path):
    home = {"HOME": str(tmp_path)}
    assert credentials(store, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", **home) == ["the environment's key"]
    [metadata] = credentials(store, AWS_ACCESS_KEY_ID="a", AWS_EC2_METADATA_SERVICE_ENDPOINT=store.url, **home)
    assert metadata == ("the machine's metadata server; before it: environment (AWS_SECRET_ACCESS_KEY is not set), "
                        "web identity (AWS_ROLE_ARN is not set), profile 'default' (it has no access key)")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    [profile] = credentials(store, AWS_ROLE_ARN="arn", **home)
    assert profile == ("the profile's key; before it: environment (AWS_ACCESS_KEY_ID is not set), "
                       "web identity (AWS_WEB_IDENTITY_TOKEN_FILE is not set)")


def test_doctor_shows_the_sources_of_google_credentials_that_it_skipped(store, tmp_path):
    (tmp_path / "token").write_text("secret")
    for env, told in (({"CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(tmp_path / "token")}, "the token file"),
                      ({"GCE_METADATA_HOST": "127.0.0.1:1"},
                       "the machine's metadata server; before it: token file (CLOUDSDK_AUTH_ACCESS_TOKEN_FILE is not set), "
                       "key file (GOOGLE_APPLICATION_CREDENTIALS is not set), "
                       "gcloud's file (application_default_credentials.json is not in its directory)")):
        done = subprocess.run([BUILD / "bin/cistern", "doctor", "gs://some-bucket/", "--endpoint", store.url],
                              env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | env, capture_output=True, text=True,
                              timeout=60, check=False)
        assert f"pass  credentials  {told}\n" in done.stdout
