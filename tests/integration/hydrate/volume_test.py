# SPDX-License-Identifier: Apache-2.0
"""A complete volume belongs to its pod: another hydration changes nothing, and the pod's files can be distinguished from
those of the bucket."""
import json
import os
import subprocess

import pytest

from paths import CISTERN, files_below

from .lib import DONE, EMPTY, USAGE, Bucket, files, make_source, summary

pytestmark = pytest.mark.timeout(120)


class Volume:
    """A volume's directory as the driver makes it."""

    def __init__(self, top, source, **layout):
        self.folder, self.bucket = top / "volume", top / "bucket"
        (self.folder / "data").mkdir(parents=True)
        spec = {"version": 1, "id": "v1-0123456789ab-0123456789ab", "name": "pvc-1", "capacityBytes": 1 << 30,
                "createdAt": "2026-11-21T09:00:00Z", "backend": "quota", "project": 0, "parameters": {},
                "source": {**(source if isinstance(source, dict) else {"uri": f"file://{source}/"}), "layout": layout,
                           "export": {"uri": f"file://{self.bucket}/", "settle": "0s"}}}
        (self.folder / "volume.json").write_text(json.dumps(spec))

    def run(self, *words):
        return subprocess.run([CISTERN, *words, "--volume", self.folder, "--quiet"], timeout=60, check=False).returncode

    def file(self, name):
        return self.folder / "data" / os.fsdecode(name)

    def status(self):
        return json.loads((self.folder / "status.json").read_text())

    def exported(self):
        return sorted(files(self.bucket)) if self.bucket.exists() else []


@pytest.fixture(name="volume")
def volume_of_five_files(tmp_path):
    volume = Volume(tmp_path, make_source(tmp_path / "source", small=4, large=((9 << 20) + 1,)))
    assert volume.run("hydrate") == DONE
    volume.names = sorted(files(volume.folder / "data"))
    return volume


def rewrite(path):
    """As long as it was, and other bytes."""
    path.write_bytes(bytes(255 - b for b in path.read_bytes()))


def test_hydrated_files_are_not_exported(volume):
    assert volume.run("export") == DONE
    assert volume.exported() == []


def test_files_of_a_pod_are_exported_after_a_second_hydration(volume):
    ended = volume.status()["finishedAt"]
    for name in volume.names[:2]:
        rewrite(volume.file(name))
    want = files(volume.folder / "data")
    assert volume.run("hydrate") == DONE
    assert files(volume.folder / "data") == want, "fetched over what the pod wrote"
    assert volume.status()["phase"] == "done" and volume.status()["finishedAt"] == ended
    assert volume.run("export") == DONE
    assert volume.exported() == volume.names[:2]


def test_the_time_of_the_end_is_known_when_the_status_is_lost(volume):
    """It is not flushed: a power loss may take it."""
    ended = volume.status()["finishedAt"]
    (volume.folder / "status.json").unlink()
    name = volume.names[0]
    times = volume.file(name).stat()
    rewrite(volume.file(name))
    os.utime(volume.file(name), ns=(times.st_atime_ns, times.st_mtime_ns))  # only ctime shows it
    assert volume.run("hydrate") == DONE
    assert volume.status()["finishedAt"] == ended
    assert volume.run("export") == DONE
    assert volume.exported() == [name]


def test_files_of_a_pod_are_exported_after_the_clock_was_set_back(volume):
    """As if hydration had ended when the clock was an hour ahead."""
    status = volume.status()
    status["finishedAt"] = "2099-01-01T00:00:00Z"
    (volume.folder / "status.json").write_text(json.dumps(status))
    rewrite(volume.file(volume.names[0]))
    assert volume.run("export") == DONE
    assert volume.exported() == volume.names[:1]


def test_directories_and_files_belong_to_the_user_of_the_layout(tmp_path):
    volume = Volume(tmp_path, make_source(tmp_path / "source", small=4, large=()), uid=1234, gid=4321)
    assert volume.run("hydrate") == DONE
    found = list((volume.folder / "data").rglob("*"))
    assert len(found) > 4 and {(p.stat().st_uid, p.stat().st_gid) for p in found} == {(1234, 4321)}


def test_a_volume_that_lacks_an_object_is_not_complete(tmp_path):
    with Bucket("data/:20:1000") as server:
        server.fault("op=get,key=data/object-000000007,do=status:404")
        volume = Volume(tmp_path, {"uri": "s3://bench/data/", "endpoint": server.url, "pathStyle": True,
                                   "identity": {"method": "anonymous"}})
        assert volume.run("hydrate") != DONE
        failed = volume.status()
        assert failed["phase"] == "failed" and not failed.get("manifestDigest")
        assert len(files_below(volume.folder / "data")) == 19
        server.no_faults()
        server.forget_stats()
        assert volume.run("hydrate") == DONE, "what lacked is fetched, by the same command"
        assert len(files_below(volume.folder / "data")) == 20 and server.stats()["get"] == 1
        done = volume.status()
        assert done["phase"] == "done" and done["manifestDigest"] and done["finishedAt"] > failed["finishedAt"]


def test_two_prefixes_with_one_path_are_reported_and_sub_paths_separate_them(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same").write_bytes(folder.encode())
    sources = [{"uri": f"file://{tmp_path}/{folder}/"} for folder in ("a", "b")]
    volume = Volume(tmp_path / "one", {"sources": sources})
    code, _, errors = summary("hydrate", "--volume", volume.folder)
    assert code == USAGE and errors[-1]["error"]["id"] == "CIS1504"
    assert "two prefixes of the source map to 'same'" in errors[-1]["error"]["message"]
    apart = Volume(tmp_path / "two", {"sources": [source | {"subPath": source["uri"][-2]} for source in sources]})
    code, _, errors = summary("hydrate", "--volume", apart.folder)
    assert (code, errors) == (DONE, [])
    assert {name: apart.file(name).read_bytes() for name in files(apart.folder / "data")} == {b"a/same": b"a", b"b/same": b"b"}


def test_one_empty_prefix_of_a_volume_fails_it_unless_allowed(tmp_path):
    make_source(tmp_path / "source", small=2, large=())
    (tmp_path / "empty").mkdir()
    sources = {"sources": [{"uri": f"file://{tmp_path}/{name}/", "subPath": name} for name in ("source", "empty")]}
    volume = Volume(tmp_path / "fails", sources)
    assert volume.run("hydrate") == EMPTY
    assert volume.status()["error"]["id"] == "CIS1530"
    assert Volume(tmp_path / "allowed", sources | {"onEmpty": "allow"}).run("hydrate") == DONE
