# SPDX-License-Identifier: Apache-2.0
"""Other vendors' clients list and read what `cistern export` wrote, and `cistern ls` and `hydrate` see what they wrote."""

import json
import pathlib
import subprocess

import pytest

from integration.lib.buckets import contents
from integration.lib.noise import noise
from paths import CACHE, CISTERN

LARGE_BYTES = (20 << 20) + 3
SIZES = {"plain": 1000, "two words/ led by a space": 10, "two words/%20": 11, "plus+sign + more": 12, "100% and %2F": 13,
         "caf\u00e9/cafe\u0301/\u65e5\u672c\u8a9e \U0001f600": 14, "amp&=;,.txt": 15, "hash#question?.bin": 16, "quotes'\"": 17,
         "deep/er/than/the/rest/of/them": 18, ".hidden/..dots": 19, "dir.d/empty": 0, "large": LARGE_BYTES}
HERE = pathlib.Path(__file__).parent


class Client:
    """A client, and a new bucket of a server that it can talk to."""

    kind = "s3-minio"

    def __init__(self, stores):
        self.bucket = stores.new_bucket(self.kind)

    def uri(self, prefix):
        return f"{self.bucket.uri}{prefix}"

    def run(self, *words):
        done = subprocess.run([str(word) for word in words], env=self.bucket.env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (done.args, done.stdout, done.stderr)
        return done.stdout

    def cistern(self, *words):
        return self.run(CISTERN, *words)


class Aws(Client):
    def aws(self, *words):
        # Without it, each empty object has `Expect: 100-continue`, whose late reply spoils the next request: 30 s, or an error.
        self.bucket.env["BOTO_EXPERIMENTAL__NO_EMPTY_CONTINUE"] = "true"
        return self.run(CACHE / "clients/bin/aws", *words)

    def sizes(self, prefix):
        return dict(json.loads(self.aws("s3api", "list-objects-v2", "--bucket", self.bucket.name, "--prefix", prefix,
                                        "--query", "Contents[].[Key, Size]", "--output", "json")))

    def download(self, prefix, to):
        self.aws("s3", "cp", "--recursive", "--only-show-errors", self.uri(prefix), to)

    def upload(self, directory, prefix):
        self.aws("s3", "cp", "--recursive", "--only-show-errors", directory, self.uri(prefix))


class S5cmd(Client):
    def s5cmd(self, *words):
        return self.run(CACHE / "bin/s5cmd", "--endpoint-url", self.bucket.endpoint, *words)

    def sizes(self, prefix):
        objects = [json.loads(line) for line in self.s5cmd("--json", "ls", self.uri(f"{prefix}*")).splitlines()]
        return {o["key"].removeprefix(self.bucket.uri): o.get("size", 0) for o in objects}

    def download(self, prefix, to):
        self.s5cmd("cp", self.uri(f"{prefix}*"), f"{to}/")

    def upload(self, directory, prefix):
        self.s5cmd("cp", "--part-size", "5", f"{directory}/", self.uri(prefix))


class Rclone(Client):
    def rclone(self, *words):
        return self.run(CACHE / "bin/rclone", "--config", "/dev/null", *words)

    def remote(self, prefix):
        return f":s3,provider=Minio,env_auth,endpoint='{self.bucket.endpoint}':{self.bucket.name}/{prefix}"

    def sizes(self, prefix):
        lines = self.rclone("lsf", "-R", "--files-only", "--format", "sp", self.remote(prefix)).splitlines()
        return {f"{prefix}{name}": int(size) for size, name in (line.split(";", 1) for line in lines)}

    def download(self, prefix, to):
        self.rclone("copy", self.remote(prefix), to)

    def upload(self, directory, prefix):
        self.rclone("copy", "--s3-upload-cutoff", "5Mi", "--s3-chunk-size", "5Mi", directory, self.remote(prefix))


class Google(Client):
    kind = "gs-fake"

    def google(self, verb, prefix, *directory):
        return self.run(CACHE / "clients/bin/python", HERE / "google_client.py", verb, self.bucket.name, prefix, *directory)

    def sizes(self, prefix):
        return json.loads(self.google("sizes", prefix))

    def download(self, prefix, to):
        self.google("download", prefix, to)

    def upload(self, directory, prefix):
        self.google("upload", prefix, directory)


@pytest.fixture(params=[Aws, S5cmd, Rclone, Google])
def client(request, stores):
    return request.param(stores)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    for name, size in SIZES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(noise(name, size))
    return directory


def assert_multipart(client, listed):
    """S3 marks the ETag of an object that came in parts."""
    if client.bucket.scheme == "s3":
        etags = {o["object"]: o["etag"] for o in listed}
        assert "-" in etags["large"] and "-" not in etags["plain"], etags


def listed_by_cistern(client, prefix):
    lines = [json.loads(line) for line in client.cistern("ls", "-r", "--json", client.uri(prefix)).splitlines()]
    return [line for line in lines if line["type"] == "object"]


def test_client_lists_and_reads_the_objects_that_cistern_exported(client, files, tmp_path):
    client.cistern("export", "--state", tmp_path / "state", files, client.uri("out/"))
    assert_multipart(client, listed_by_cistern(client, "out/"))
    assert client.sizes("out/") == {f"out/{name}": size for name, size in SIZES.items()}
    back = tmp_path / "back"
    back.mkdir()
    client.download("out/", back)
    assert contents(back) == contents(files)


def test_cistern_lists_and_hydrates_the_objects_that_a_client_wrote(client, files, tmp_path):
    client.upload(files, "in/")
    listed = listed_by_cistern(client, "in/")
    assert_multipart(client, listed)
    assert {o["object"]: o["bytes"] for o in listed} == SIZES
    client.cistern("hydrate", client.uri("in/"), tmp_path / "back")
    assert contents(tmp_path / "back") == contents(files)
