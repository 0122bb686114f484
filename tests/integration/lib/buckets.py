# SPDX-License-Identifier: Apache-2.0
"""Buckets to test against, and store.h's functions on them through store_tool."""

import itertools
import json
import os
import pathlib
import subprocess
import urllib.parse

from paths import BUILD
from servers import minio, versitygw
from servers.fake_gcs import FakeGcs

TOOL = BUILD / "tests/store_tool"
numbers = itertools.count()

# Variables of the machine's owner must not reach the programs under test.
FOREIGN = ("AWS_", "GOOGLE_", "CLOUDSDK_", "GCE_", "STORAGE_EMULATOR_HOST", "http_proxy", "https_proxy", "HTTP_PROXY",
           "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def clean_environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    env.update({"HOME": "/nonexistent", **more})
    return env


def contents(folder):
    """The bytes of every file below, by its path there."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}


def quote(key):
    return urllib.parse.quote(key, safe="/-._~")


def unquote(key):
    return urllib.parse.unquote_to_bytes(key)


class Answer:
    """The result of a call: `code` is "OK" or the error's name; the last line's fields are attributes."""

    def __init__(self, lines):
        self.lines = lines[:-1]
        self.fields = lines[-1]

    def __getattr__(self, name):
        return self.fields[name]

    def __repr__(self):
        return repr(self.fields)


def run_tool(*arguments, env, timeout=120):
    done = subprocess.run([str(TOOL), *map(str, arguments)], env=env, capture_output=True, timeout=timeout)
    assert done.returncode == 0, f"store_tool ended with {done.returncode}: {done.stderr.decode(errors='replace')}"
    return Answer([json.loads(line) for line in done.stdout.splitlines()])


class Bucket:
    def __init__(self, kind, name, uri, env, folder, endpoint=None):
        self.kind, self.name, self.uri, self.env, self.folder, self.endpoint = kind, name, uri, env, folder, endpoint
        self.scheme = uri.split(":")[0]

    def __repr__(self):
        return f"<{self.kind} {self.uri}>"

    def call(self, *arguments, flags=(), env=None):
        return run_tool(*flags, self.uri, *arguments, env=env or self.env)

    def file(self, data):
        """A file of these bytes, to be sent."""
        path = self.folder / f"sent-{next(numbers)}"
        path.write_bytes(data)
        return path

    def put(self, key, data=b"", *more, digest="crc32c"):
        return self.call("put", quote(key), self.file(data), "--digest", digest, *more)

    def upload(self, key, data, part_bytes, *more):
        return self.call("upload", quote(key), self.file(data), part_bytes, *more)

    def head(self, key):
        return self.call("head", quote(key))

    def delete(self, key):
        return self.call("delete", quote(key))

    def get(self, key, size, *more, **span):
        """(answer, bytes that came)"""
        out = self.folder / f"got-{next(numbers)}"
        options = itertools.chain.from_iterable((f"--{k}", v) for k, v in span.items())
        answer = self.call("get", quote(key), "--size", size, "--out", out, *options, *more)
        return answer, out.read_bytes()

    def list(self, *more):
        """The listed objects, in their order; the call must succeed."""
        answer = self.call("list", *more)
        assert answer.code == "OK", answer
        return answer.lines

    def keys(self, *more):
        return [unquote(o["key"]) for o in self.list(*more)]


class Stores:
    def __init__(self, folders):
        self.folders = folders
        self.servers = {}

    def server(self, kind):
        if kind not in self.servers:
            make = {"s3-versitygw": versitygw.Versitygw, "s3-minio": minio.Minio, "gs-fake": FakeGcs}[kind]
            self.servers[kind] = make().start()
        return self.servers[kind]

    def new_bucket(self, kind):
        name = f"bucket-{next(numbers)}"
        folder = self.folders.mktemp(name)
        if kind == "file":
            (folder / "data").mkdir()
            return Bucket(kind, name, f"file://{folder}/data/", clean_environment(), folder)
        server = self.server(kind)
        server.make_bucket(name)
        if kind == "gs-fake":
            return Bucket(kind, name, f"gs://{name}/", clean_environment(STORAGE_EMULATOR_HOST=server.url), folder,
                          server.url)
        env = clean_environment(AWS_ACCESS_KEY_ID=minio.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=minio.SECRET_KEY,
                                AWS_REGION=minio.REGION, AWS_ENDPOINT_URL=server.url)
        return Bucket(kind, name, f"s3://{name}/", env, folder, server.url)

    def stop(self):
        for server in self.servers.values():
            server.stop()
