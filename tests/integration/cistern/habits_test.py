# SPDX-License-Identifier: Apache-2.0
"""Commands as people write them who come from aws, s5cmd, rclone or gsutil: each works, or says in one line what to write."""
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from paths import CISTERN
from servers.answering import Answering
from servers.bucket import KEYS, BucketServer


@pytest.fixture(scope="module")
def bucket():
    with BucketServer() as server:
        for key in ("small/all/1", "small/all/2", "small/one", "smaller", "other"):
            server.put(key, b"content")
        yield server


def cistern(*words):
    return subprocess.run([CISTERN, *map(str, words)], env=os.environ | KEYS, capture_output=True, text=True, timeout=60, check=False)


def ls(bucket, uri, *flags):
    done = cistern("ls", uri, "--endpoint", bucket.url, "--path-style", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("uri, names", [
    ("s3://bench/", ["other", "small/", "smaller"]),
    ("s3://bench/sm", ["small/", "smaller"]),
    ("s3://bench/small", ["small/", "smaller"]),
    ("s3://bench/small/", ["all/", "one"]),
    ("s3://bench/small/o", ["one"]),
    ("s3://bench/small/one", ["one"]),
])
def test_ls_shows_each_name_after_the_last_slash_of_the_uri(bucket, uri, names):
    assert ls(bucket, uri) == names


def test_ls_keeps_a_name_with_control_characters_on_one_line(bucket):
    bucket.put("odd/\x01a\tb\x7f", b"content")
    bucket.put("odd/\n", b"content")
    assert ls(bucket, "s3://bench/odd/") == [r"\x01a\x09b\x7f", r"\x0a"]
    bucket.remove("odd/\x01a\tb\x7f")
    bucket.remove("odd/\n")


def test_ls_of_all_levels_shows_paths_after_the_last_slash(bucket):
    assert ls(bucket, "s3://bench/small/", "-r") == ["all/1", "all/2", "one"]
    assert ls(bucket, "s3://bench/small/one", "-r") == ["one"]
    assert ls(bucket, "s3://bench/", "-r", "--include", "small/**") == ["small/all/1", "small/all/2", "small/one"]


def test_ls_of_a_name_that_nothing_begins_with_fails(bucket):
    done = cistern("ls", "s3://bench/smell", "--endpoint", bucket.url, "--path-style")
    assert done.returncode == 9 and "'s3://bench/smell': no object has this key" in done.stderr


@pytest.mark.parametrize("flags", [[], ["-r"], ["--sum"]])
def test_ls_of_a_prefix_without_objects_fails(bucket, flags):
    done = cistern("ls", "s3://bench/smell/", *flags, "--endpoint", bucket.url, "--path-style")
    assert done.returncode == 9 and "'s3://bench/smell/': no object is below this prefix (CIS1530" in done.stderr, done.stderr
    done = cistern("ls", "s3://bench/", "--include", "*.bin", *flags, "--endpoint", bucket.url, "--path-style")
    assert done.returncode == 9 and "include and exclude leave out all" in done.stderr, done.stderr


@pytest.mark.parametrize("flags", [[], ["-r"]])
def test_ls_of_an_empty_bucket_prints_nothing(tmp_path, flags):
    (tmp_path / "empty").mkdir()
    with BucketServer() as server:
        for where in (["s3://bench/", "--endpoint", server.url, "--path-style"], [f"file://{tmp_path}/empty/"]):
            done = cistern("ls", *where, *flags)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("flags", [["--endpoint-url"], ["--endpoint"]])
def test_other_names_of_flags_work(bucket, flags):
    done = cistern("ls", "s3://bench/", *flags, bucket.url, "--path-style", "--no-sign-request")
    assert done.stdout.splitlines() == ["other", "small/", "smaller"], done.stderr
    assert "endpoint-url" not in cistern("--help").stdout


def test_flags_of_a_copy_have_the_names_of_other_tools(bucket, tmp_path):
    to = ["s3://bench/", tmp_path / "out", "--endpoint", bucket.url, "--path-style", "--anonymous", "--no-progress"]
    for flags in (["--recursive"], ["-r", "--transfers", "4"], ["--numworkers", "4"]):
        done = cistern("hydrate", *to, *flags)
        assert done.returncode == 0, done.stderr
    assert "--numworkers: " in cistern("hydrate", *to, "--numworkers", "0").stderr
    shown = re.findall(r"--(\w+)", cistern("help", "hydrate").stdout)
    assert not {"transfers", "numworkers", "recursive"} & set(shown)


@pytest.mark.parametrize("words, hint", [
    (["sync", "s3://a/b", "c"], "`cistern hydrate URI DIR` copies from a bucket"),
    (["cp", "a", "s3://b/c"], "`cistern export DIR URI` to it"),
    (["hydrat", "s3://abc/b", "c"], "did you mean hydrate?"),
    (["exprot"], "did you mean export?"),
    (["quux"], "`cistern --help` lists them"),
    (["help", "hydrat"], "did you mean hydrate?"),
    (["export", "s3://abc/d/", "folder"], "`cistern export folder s3://abc/d/`"),
    (["hydrate", "folder", "s3://abc/d/"], "`cistern hydrate s3://abc/d/ folder`"),
    (["hydrate", "s3://abc/d/", "x", "--bandwith", "1M"], "did you mean --bandwidth?"),
])
def test_a_wrong_command_is_answered_by_the_right_one_in_a_line(words, hint):
    done = cistern(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert hint in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_version_and_help_are_verbs_too():
    assert cistern("version").stdout == cistern("--version").stdout
    for words in (["help"], ["help", "help"], ["help", "--help"], ["-h"]):
        assert cistern(*words).stdout == cistern("--help").stdout
    assert cistern("help", "hydrate").stdout == cistern("hydrate", "--help").stdout


@pytest.mark.parametrize("verb", ["hydrate", "export", "ls", "doctor", "status", "mount"])
def test_the_help_of_a_verb_has_the_shared_flags(verb):
    told = cistern(verb, "--help").stdout
    shared = cistern("--help").stdout.split("Flags of all verbs, with (default):\n")[1].split("      --help ")[0]
    assert "--endpoint URL" in shared and shared in told


def test_internal_verbs_work_and_are_not_listed():
    assert "hold" not in cistern("--help").stdout
    assert "drain" in cistern("hold", "--help").stdout
    assert "`cistern --help` lists them" in cistern("hol").stderr


@pytest.mark.parametrize("size", ["1MB", "1MiB", "1M", "1000000B"])
def test_sizes_may_end_in_b(bucket, tmp_path, size):
    done = cistern("hydrate", "s3://bench/small/", tmp_path / "out", "--bandwidth", size, "--endpoint", bucket.url, "--path-style")
    assert done.returncode == 0, done.stderr


def test_an_export_takes_the_files_of_the_last_seconds(bucket, tmp_path):
    (tmp_path / "old").write_text("old")
    time.sleep(5)
    (tmp_path / "new").write_text("new")
    done = cistern("export", tmp_path, "s3://bench/since/", "--since", "5s", "--endpoint", bucket.url, "--path-style",
                   "--state", tmp_path.parent / f"{tmp_path.name}-state")
    assert done.returncode == 0, done.stderr
    assert ls(bucket, "s3://bench/since/") == ["new"]


@pytest.mark.parametrize("verb", ["ls", "hydrate", "hydrate --dry-run"])
def test_a_wildcard_in_the_uri_is_answered_by_the_flag(bucket, tmp_path, verb):
    name, *flags = verb.split()
    done = cistern(name, "s3://bench/small/all/*", *([tmp_path / "out"] if name == "hydrate" else []), *flags,
                   "--endpoint", bucket.url, "--path-style")
    assert done.returncode != 0 and "use s3://bench/small/all/ with --include '*'" in done.stderr, done.stderr


@pytest.mark.parametrize("flags, header", [(["--requester-pays"], "requester"), ([], None)])
def test_the_requester_pays_on_request(flags, header):
    seen = []

    def answer(request):
        seen.append(request.headers.get("x-amz-request-payer"))
        return 200, {}, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"

    with Answering(answer) as server:
        cistern("ls", "s3://bench/p/", "--endpoint", server.url, "--path-style", *flags)
    assert seen and set(seen) == {header}


def test_a_dry_export_leaves_no_record(bucket, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    words = ["export", tmp_path / "data", "s3://bench/dry/", "--endpoint", bucket.url, "--path-style", "--state", tmp_path / "new/state"]
    assert cistern(*words, "--dry-run").returncode == 0
    assert os.listdir(tmp_path) == ["data"]
    assert cistern(*words).returncode == 0
    have = sorted(os.listdir(tmp_path / "new/state/export"))
    assert cistern(*words, "--dry-run").returncode == 0
    assert sorted(os.listdir(tmp_path / "new/state/export")) == have
    bucket.remove("dry/file")


@pytest.mark.parametrize("machine, timeout, code, told", [
    ("Standard PC", "10m", 4, "this is not a Google Cloud machine"), ("Google Compute Engine", "5s", 5, "cannot find the address")])
def test_google_without_credentials_fails_at_once_where_no_metadata_server_can_be(tmp_path, machine, timeout, code, told):
    """In a network of its own nothing answers. The firmware names the machine."""
    of_machine = "mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/dmi/id && echo \"$0\" >/sys/class/dmi/id/product_name"
    done = subprocess.run(["unshare", "--net", "--mount", "sh", "-c", f'{of_machine} && exec "$@"', machine, CISTERN, "ls",
                           "gs://some-bucket/", "--timeout", timeout], env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code and told in done.stderr, done.stderr


def has_pending(pid, number):
    """False of a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(int(line.split()[1], 16) >> number - 1 & 1 for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd")))


def hang_up(words, disposition):
    """Runs a copy that gets SIGHUP during its first request, and answers when the signal was taken."""
    child, started, taken = None, threading.Event(), threading.Event()

    def answer(request):
        if request is server.seen[0]:
            started.wait(30)
            child.send_signal(signal.SIGHUP)
            while has_pending(child.pid, signal.SIGHUP):
                time.sleep(0.01)
            taken.set()
        if "list-type=" in request.path:
            return 200, {}, (b"<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents>"
                             b"<Key>p/one</Key><ETag>\"9a0364b9e99bb480dd25e1f0284c8555\"</ETag><Size>7</Size>"
                             b"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>")
        return 200, {"etag": '"9a0364b9e99bb480dd25e1f0284c8555"'}, b"content" if request.method == "GET" else b""

    with Answering(answer) as server:
        child = subprocess.Popen([CISTERN, *map(str, words), "--endpoint", server.url, "--path-style"], env=os.environ | KEYS,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, disposition))
        started.set()
        try:
            said = child.communicate(timeout=60)[0]
        finally:
            child.kill()
    assert taken.wait(30), said  # the thread that answers may be later than the end of the child
    return child.returncode, said


def test_a_hangup_that_nohup_ignores_ends_no_hydration(tmp_path):
    code, said = hang_up(["hydrate", "s3://bucket/p/", tmp_path / "data"], signal.SIG_IGN)
    assert code == 0, said
    assert (tmp_path / "data/one").read_text() == "content"


def test_a_hangup_stops_an_export_that_can_be_continued(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/one").write_text("content")
    code, said = hang_up(["export", tmp_path / "data", "s3://bucket/p/", "--state", tmp_path / "state"], signal.SIG_DFL)
    assert code == 8 and "repeat the command to continue" in said and "stopped: sent 0" in said, said
    code, said = hang_up(["export", tmp_path / "data", "s3://bucket/p/", "--state", tmp_path / "state", "--json"], signal.SIG_DFL)
    summary = next(line for line in map(json.loads, said.splitlines()) if line["type"] == "summary")
    assert code == 8 and summary["state"] == "stopped", said
