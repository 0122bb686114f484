# SPDX-License-Identifier: Apache-2.0
"""A destination that would refuse exports has events before a pod has trained for a day: on the BucketSource, and on the claims
and pods of its volumes. The pods start nevertheless. The stores are real; MinIO enforces the rights."""

import base64
import json

import pytest

from integration.lib.claims import API, running_world, wait_for
from paths import TOP
from servers import minio
from servers.bucket import BucketServer

BUCKET = minio.EXAMPLE_BUCKET
POLICY = json.loads((TOP / "deploy/permissions/s3-export.json").read_text().replace("BUCKET", BUCKET).replace("PREFIX", "runs"))


@pytest.fixture(scope="module")
def world():
    with running_world(nodes=1, flags=["--broker-listen=127.0.0.1:0", "--allow-address=127.0.0.1/32"]) as w:
        yield w


@pytest.fixture
def ns(world, request):
    name = f"team-{abs(hash(request.node.name)) % 10**8}"
    world.make_namespace(name)
    return name


def without(*missing):
    """The policy of an export, but for these actions."""
    statements = [{**s, "Action": [a for a in s["Action"] if a not in missing]} for s in POLICY["Statement"]]
    return {**POLICY, "Statement": [s for s in statements if s["Action"]]}


def make(world, ns, server, policy, **export):
    names = ("access_key_id", "secret_access_key", "session_token")
    world.cluster.create(f"/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "exporter"}, "data": {
        k: base64.b64encode(v.encode()).decode() for k, v in zip(names, server.session(policy))}})
    with BucketServer() as data:  # it is gone when the volume is filled, which is played
        world.make_source(ns, uri="s3://bench/", onEmpty="allow", endpoint=data.url, export={
            "uri": f"s3://{BUCKET}/runs/", "endpoint": server.url, "region": minio.REGION, "secretRef": {"name": "exporter"}, **export})
        return wait_for(lambda: exportable(world, ns), what="the destination was tested")


def source(world, ns):
    return world.cluster.get(f"{API}/namespaces/{ns}/bucketsources/data")


def exportable(world, ns):
    told = {c["type"]: c for c in source(world, ns).get("status", {}).get("conditions", [])}
    return told if told.get("Exportable", {}).get("status", "Unknown") != "Unknown" else None


def left_behind(server):
    """All files of the bucket, and all unfinished uploads."""
    files = [p.relative_to(server.data) for p in (server.data / BUCKET).rglob("*") if p.is_file()]
    uploads = server.data / ".minio.sys/multipart"
    return files + [p for p in uploads.rglob("*") if p.name == "xl.meta"]


def test_an_export_with_the_rights_of_the_policy_is_exportable_and_nothing_is_written(world, ns, minio_server):
    told = make(world, ns, minio_server, POLICY)
    assert told["Exportable"]["status"] == "True" and told["Ready"]["status"] == "True", told
    assert left_behind(minio_server) == []


@pytest.mark.parametrize("missing, export, reason, said", [
    ((), {"uri": "s3://no-such-bucket/runs/"}, "ExportBucketNotFound", "there is no bucket 'no-such-bucket'"),
    (("s3:PutObject",), {}, "ExportDenied", "s3:PutObject"),
    (("s3:AbortMultipartUpload",), {}, "ExportDenied", "s3:AbortMultipartUpload"),
    ((), {"endpoint": "http://127.0.0.1:1"}, "ExportUnreachable", "cannot connect to 'http://127.0.0.1:1'"),
    ((), {"endpoint": "http://127.0.0.2:1"}, "ExportRefused", "CIS1617"),
    ((), {"storageClass": "FROZEN"}, "ExportRefused", "FROZEN"),
], ids=lambda p: p if isinstance(p, str) else None)
def test_a_destination_that_would_refuse_has_events_on_source_claim_and_pod_which_starts(
        world, ns, minio_server, missing, export, reason, said):
    policy = without(*missing)
    if "no-such" in str(export):
        policy = json.loads(json.dumps(policy).replace(BUCKET, "no-such-bucket"))
    told = make(world, ns, minio_server, policy, **export)
    assert told["Exportable"]["status"] == "False" and told["Exportable"]["reason"] == reason, told
    assert said in told["Exportable"]["message"], told
    assert told["Ready"]["reason"] == reason and source(world, ns)["status"]["phase"] == "Degraded"
    assert left_behind(minio_server) == []

    world.make_claim(ns)
    world.make_pod(ns)

    def events():
        found = {e["involvedObject"]["kind"]: e["message"] for e in world.events(ns, reason)}
        return found if len(found) == 3 else None

    messages = wait_for(events, what=f"{reason} on source, claim and pod")
    assert set(messages) == {"BucketSource", "PersistentVolumeClaim", "Pod"}
    assert all(said in m for m in messages.values()), messages
    world.wait_for_bound(ns)
    world.empty(ns)


def test_a_bucket_that_is_deleted_later_is_an_event_on_a_bound_claim(world, ns, minio_server):
    make(world, ns, minio_server, POLICY)
    world.make_claim(ns)
    world.make_pod(ns)
    world.wait_for_bound(ns)
    (minio_server.data / BUCKET).rename(minio_server.data / "taken-away")
    try:
        world.kill("controller0")  # the next one probes at once
        world.forget_leader()
        world.start_controller()
        wait_for(lambda: {e["involvedObject"]["kind"] for e in world.events(ns, "ExportBucketNotFound")} >=
                 {"BucketSource", "PersistentVolumeClaim"}, 20, "both have an event")
        wait_for(lambda: exportable(world, ns)["Exportable"]["reason"] == "ExportBucketNotFound")
    finally:
        (minio_server.data / "taken-away").rename(minio_server.data / BUCKET)
    world.empty(ns)
