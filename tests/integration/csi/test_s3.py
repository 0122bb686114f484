# SPDX-License-Identifier: Apache-2.0
"""A volume's whole life with a bucket at either end: filled from S3, worked on, and what was written is in S3."""
import random

import pytest
from driver import MIB, Driver
from test_hydration import ask_until_ready, tree
from test_release import delete_until


@pytest.fixture
def with_s3(folder, s3_bucket):
    d = Driver(folder, env={k: v for k, v in s3_bucket.env.items() if k.startswith("AWS_") and "ENDPOINT" not in k})
    yield d.start()
    code = d.stop()
    d.clean_up()
    assert code == 0, d.log_text()[-5000:]


@pytest.mark.parametrize("access", ["bind", "fuse"])
def test_a_volume_is_filled_from_s3_and_what_was_written_goes_to_s3(with_s3, s3_bucket, access):
    rng = random.Random(3)
    source = {"in/model/weights": rng.randbytes(9 * MIB), "in/config é.json": b"{}", "in/empty": b"",
              "in/model/skipped.tmp": b"x", "elsewhere": b"y"}
    for key, data in source.items():
        assert s3_bucket.put(key, data).code == "OK"
    volume = with_s3.client.create("pvc", size=64 * MIB, access=access, uri=f"{s3_bucket.uri}in/", exclude="*.tmp",
                                   endpoint=s3_bucket.endpoint, **{"export.uri": f"{s3_bucket.uri}out/",
                                                                   "export.settle": "0s"}).volume_id
    with_s3.stage(volume)
    target = ask_until_ready(with_s3, volume)
    assert {k: v for k, v in tree(target).items() if not k.startswith("lost+found")} == {
        k.removeprefix("in/"): v for k, v in source.items() if k.startswith("in/") and not k.endswith(".tmp")}
    written = {"ckpt/weights": rng.randbytes(7 * MIB), "ckpt/log é": b"words", "config é.json": b"{1}"}
    (target / "ckpt").mkdir()
    for name, data in written.items():
        (target / name).write_bytes(data)
    with_s3.unpublish(volume)
    with_s3.unstage(volume)
    delete_until(with_s3, volume)
    assert not with_s3.client.call("ListVolumes").entries
    assert {k for k in map(bytes.decode, s3_bucket.keys()) if k.startswith("out/")} == {f"out/{name}" for name in written}
    for name, data in written.items():
        assert s3_bucket.get(f"out/{name}", len(data))[1] == data
