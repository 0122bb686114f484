# SPDX-License-Identifier: Apache-2.0
"""A volume's whole life with a bucket at either end: filled from S3, worked on, and what was written is in S3."""
import random

import pytest

from integration.lib.buckets import clean_environment, contents
from servers import versitygw
from servers.tls import Authority

from .driver import MIB, Driver, ask_until_ready, delete_until, wait_for


@pytest.fixture
def with_s3(folder, s3_bucket):
    d = Driver(folder, env={k: v for k, v in s3_bucket.env.items() if k.startswith("AWS_") and "ENDPOINT" not in k})
    yield d.start()
    d.end()


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
    assert {k: v for k, v in contents(target).items() if not k.startswith("lost+found")} == {
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


@pytest.fixture(scope="module")
def private_store(tmp_path_factory):
    """A store whose certificate an authority of its own signed: (server, authority)."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with versitygw.Versitygw(tls=authority.sign("127.0.0.1")) as server:
        server.make_bucket("bucket")
        (server.data / "bucket/in").mkdir()
        (server.data / "bucket/in/weights").write_bytes(b"w" * MIB)
        yield server, authority


@pytest.fixture
def with_keys(folder):
    d = Driver(folder, env=clean_environment(AWS_ACCESS_KEY_ID=versitygw.ACCESS_KEY,
                                             AWS_SECRET_ACCESS_KEY=versitygw.SECRET_KEY, AWS_REGION=versitygw.REGION))
    yield d.start()
    d.end()


def private(server, authority=None, **more):
    return {"uri": "s3://bucket/in/", "endpoint": server.url, "export.uri": "s3://bucket/out/", "export.settle": "0s",
            **({"caBundle": authority.pem} if authority else {}), **more}


def test_authority_of_a_source_is_trusted_for_hydration_and_export(with_keys, private_store):
    server, authority = private_store
    volume = with_keys.client.create("pvc", size=64 * MIB, **private(server, authority)).volume_id
    with_keys.stage(volume)
    target = ask_until_ready(with_keys, volume)
    assert (target / "weights").read_bytes() == b"w" * MIB
    (target / "result").write_bytes(b"home")
    with_keys.unpublish(volume)
    with_keys.unstage(volume)
    delete_until(with_keys, volume)
    assert (server.data / "bucket/out/result").read_bytes() == b"home"


def test_an_export_may_trust_another_authority_than_the_source(with_keys, private_store, tmp_path):
    server, authority = private_store
    other = Authority(tmp_path)
    volume = with_keys.client.create("pvc", size=64 * MIB, hydration="none", **private(
        server, other, **{"export.caBundle": authority.pem, "export.uri": "s3://bucket/other/"})).volume_id
    with_keys.stage(volume)
    target = ask_until_ready(with_keys, volume)
    (target / "result").write_bytes(b"home")
    with_keys.unpublish(volume)
    with_keys.unstage(volume)
    delete_until(with_keys, volume)
    assert (server.data / "bucket/other/result").read_bytes() == b"home"


def test_store_with_an_unknown_authority_is_not_trusted(with_keys, private_store):
    volume = with_keys.client.create("pvc", size=64 * MIB, **private(private_store[0])).volume_id
    with_keys.stage(volume)
    with_keys.target(volume).parent.mkdir(parents=True)
    wait_for(lambda: "CIS1613" in with_keys.client.fails("NodePublishVolume", timeout=2,
                                                         **with_keys.publish_fields(volume))[1])
    with_keys.unstage(volume)
    delete_until(with_keys, volume)


@pytest.mark.parametrize("words", ["no certificate at all", "-----BEGIN CERTIFICATE-----\ncut", "{pem}{key}"])
def test_invalid_ca_bundle_fails_create_volume(with_keys, private_store, words):
    server, authority = private_store
    words = words.format(pem=authority.pem, key=authority.key.read_text())
    with pytest.raises(Exception, match="caBundle.*CIS2002"):
        with_keys.client.create("pvc", size=64 * MIB, **private(server, caBundle=words))
