# SPDX-License-Identifier: Apache-2.0
"""A verb whose output cannot be written fails, and wrong keys of a listing are refused."""
import json
import os
import subprocess

import pytest

from paths import CISTERN
from servers.answering import Answering

pytestmark = pytest.mark.asan
DONE, MISMATCH, ENVIRONMENT = 0, 7, 10
PATIENCE = ("--anonymous", "--retries", "2", "--stall", "5s")


def cistern(*args, stdout=subprocess.PIPE):
    return subprocess.run([CISTERN, *map(str, args)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=30, check=False)


@pytest.fixture
def full():
    with open("/dev/full", "w", encoding="utf-8") as device:
        yield device


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b/c"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(name)
    return tmp_path / "source"


@pytest.mark.parametrize("flags", [[], ["-r"], ["--sum"], ["--json"], ["-r", "--json"], ["-r", "--max", "1"]])
def test_ls_to_a_full_disk_fails(folder, full, flags):
    done = cistern("ls", f"file://{folder}/", *flags, stdout=full)
    assert done.returncode == ENVIRONMENT and "CIS9103" in done.stderr


def test_manifest_to_a_full_disk_fails(folder):
    done = cistern("ls", f"file://{folder}/", "--manifest-out", "/dev/full")
    assert done.returncode != DONE and "/dev/full" in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_to_a_full_disk_fails(full, words):
    assert cistern(*words, stdout=full).returncode == ENVIRONMENT


def test_hydration_with_a_full_output_is_done(folder, full, tmp_path):
    assert cistern("hydrate", f"file://{folder}/", tmp_path / "out", "--json", stdout=full).returncode == DONE
    assert (tmp_path / "out/b/c").read_text() == "b/c"


def page(*objects):
    names = "".join(f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>" for key, size in objects)
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{names}</ListBucketResult>".encode()


@pytest.mark.parametrize("flags", [[], ["-r"], ["-r", "--max", "5"], ["--sum"]])
@pytest.mark.parametrize("key", ["else/where", "d", "data"])
def test_keys_outside_the_prefix_are_refused(flags, key):
    with Answering(lambda request: (200, {}, page((key, 1)))) as server:
        done = cistern("ls", "s3://bench/data/", "--endpoint", server.url, *PATIENCE, *flags)
    assert done.returncode == MISMATCH and "CIS1601" in done.stderr and done.stdout == ""


def test_sizes_that_are_more_than_a_number_holds_do_not_begin_at_nothing_again():
    with Answering(lambda request: (200, {}, page(*((f"data/{i}", 1 << 62) for i in range(5))))) as server:
        done = cistern("ls", "s3://bench/data/", "--endpoint", server.url, *PATIENCE, "--sum", "--json")
    assert json.loads(done.stdout)["bytes"] == (1 << 64) - 1


def test_errors_of_a_directory_are_plain_text_and_json(tmp_path):
    def answer(request):
        return (200, {}, page(("data/%1B%5B2J", 5)).replace(b"<IsT", b"<EncodingType>url</EncodingType><IsT")) \
            if "list-type" in request.path else (404, {}, b"<Error><Code>NoSuchKey</Code></Error>")
    with Answering(answer) as server:
        cistern("hydrate", "s3://bench/data/", tmp_path / "out", "--endpoint", server.url, *PATIENCE)
    text = cistern("status", "--errors", tmp_path / "out")
    assert "CIS1404" in text.stdout and "?[2J" in text.stdout and "\x1b" not in text.stdout
    lines = [json.loads(line) for line in cistern("status", "--errors", "--json", tmp_path / "out").stdout.splitlines()]
    assert [line["type"] for line in lines] == ["volume", "error", "error"]
    assert {"\x1b[2J"} == {line["object"] for line in lines if "object" in line}
    assert "CIS1404" in {line["error"]["id"] for line in lines[1:]} and os.fspath(tmp_path / "out") == lines[1]["volume"]
