# SPDX-License-Identifier: Apache-2.0
"""The schemas of our kinds, held against a real API server: what is right is taken, what is not is refused with a
sentence that says why, and kubectl shows the columns."""

import json
import re
import uuid

import pytest

from servers.kubernetes import ApiError

SOURCES = "/apis/cistern.io/v1alpha1/namespaces/default/bucketsources"
VOLUMES = "/apis/cistern.io/v1alpha1/cisternvolumes"
POOLS = "/apis/cistern.io/v1alpha1/cisternpools"
STRICT = "?fieldValidation=Strict"


def source(name, **spec):
    return {"apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": name}, "spec": spec}


def volume(name="pvc-1", **spec):
    whole = {"volumeID": "v1-0123456789ab-ba9876543210", "nodeName": "n1", "pool": "default", "capacityBytes": 1 << 30}
    return {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume",
            "metadata": {"name": name, "finalizers": ["cistern.io/release"]}, "spec": {**whole, **spec}}


def pool(name="n1.default", node="n1", pool_name="default"):
    return {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternPool", "metadata": {"name": name},
            "spec": {"nodeName": node, "pool": pool_name}}


FULL = {
    "uri": "gs://acme/llama/", "endpoint": "https://storage.example", "region": "eu-west-1", "pathStyle": True,
    "serviceAccountName": "trainer", "secretRef": {"name": "keys"},
    "identity": {"method": "wif", "audience": "//iam/x", "provider": "p"},
    "include": ["**/*.bin"], "exclude": ["tmp/**"], "requesterPays": "my-project",
    "shard": {"index": 0, "count": 4}, "consistency": "pinned", "onChange": "fail", "onEmpty": "fail", "onMissing": "fail",
    "retry": {"maxAttempts": 8, "maxElapsed": "30m", "backoffBase": "250ms", "backoffCap": "32s"},
    "layout": {"subPath": "in", "dirMode": "0755", "fileMode": "0644", "uid": 0, "gid": 4294967294, "stripPrefix": True},
    "priority": ["config.json"], "sizeCheck": True, "suspend": False,
    "export": {"uri": "s3://out/x/", "include": ["ckpt/**"], "exclude": ["*.tmp"],
               "trigger": ["OnUnpublish", "OnRelease"],
               "select": {"group": "directory", "latest": 2, "every": 100,
                          "best": {"file": "metrics.json", "key": "eval_loss", "order": "min", "count": 1}},
               "storageClass": "NEARLINE", "serviceAccountName": "out", "secretRef": {"name": "out"},
               "settle": "30s", "marker": "_SUCCESS", "conflict": "fail", "onFailure": "Retain",
               "deadline": "24h"},
}


def test_every_field_of_the_contract_is_taken(cluster):
    made = cluster.create(SOURCES + STRICT, source("full", **FULL))
    assert made["spec"] == FULL


@pytest.mark.parametrize("spec, sentence", [
    ({}, "set uri, sources or export"),
    ({"uri": "s3://b/", "sources": [{"uri": "s3://c/"}]}, "set uri or sources, not both"),
    ({"sources": [{"uri": "s3://c/"}], "include": ["*"]}, "set include and exclude in the entries of sources"),
    ({"uri": "http://b/"}, "spec.uri"),
    ({"uri": "file:///etc/"}, "spec.uri"),
    ({"uri": "s3://b/", "identity": {"method": "magic"}}, "Unsupported value"),
    ({"uri": "s3://b/", "retry": {"maxElapsed": "soon"}}, "spec.retry.maxElapsed"),
    ({"uri": "s3://b/", "layout": {"dirMode": "0999"}}, "spec.layout.dirMode"),
    ({"uri": "s3://b/", "include": ["*"] * 257}, "must have at most 256 items"),
    ({"uri": "s3://b/", "export": {"marker": "_SUCCESS"}}, "spec.export.uri: Required value"),
    ({"uri": "s3://b/", "export": {"uri": "s3://c/", "marker": "m", "select": {"latest": 1}}},
     "set select.group to directory"),
    ({"export": {"uri": "s3://c/", "trigger": []}}, "spec.export.trigger"),
    ({"export": {"uri": "s3://c/", "trigger": ["Manual"]}}, "add OnUnpublish or OnRelease"),
    ({"export": {"uri": ""}}, "spec.export.uri"),
    ({"export": {"uri": "s3://c/", "include": ["/ckpt/**"]}}, "spec.export.include"),
    ({"export": {"uri": "s3://c/", "include": ["ckpt/"]}}, "spec.export.include"),
    ({"export": {"uri": "s3://c/", "exclude": ["*.tmp", "**"]}}, "leaves out every file"),
    ({"uri": "s3://b/", "colour": "red"}, 'unknown field "spec.colour"'),
    ({"uri": "s3://b/", "maxAge": "1h"}, 'unknown field "spec.maxAge"'),
    ({"uri": "s3://b/", "consistency": "latest"}, "Unsupported value"),
    ({"uri": "s3://b/", "identity": {"method": "kiam"}}, "Unsupported value"),
    ({"export": {"uri": "s3://c/", "trigger": ["OnRelease", "Interval"]}}, "Unsupported value"),
])
def test_a_wrong_source_is_refused_with_the_reason(cluster, spec, sentence):
    with pytest.raises(ApiError) as refused:
        cluster.create(SOURCES + STRICT, source("wrong", **spec))
    assert sentence in refused.value.status["message"]


def test_a_source_keeps_its_uri_once_it_was_used_and_not_before(cluster):
    cluster.create(SOURCES, source("kept", uri="s3://a/", export={"uri": "s3://out/"}))
    path = f"{SOURCES}/kept"
    cluster.patch(path, {"spec": {"uri": "s3://b/"}})
    cluster.patch(path + "/status", {"status": {"firstUsedAt": "2026-11-21T10:00:00Z"}})
    for change, field in [({"uri": "s3://c/"}, "spec.uri"), ({"layout": {"uid": 1}}, "spec.layout"),
                          ({"export": {"uri": "s3://other/"}}, "spec.export.uri"), ({"export": None}, "spec.export.uri")]:
        with pytest.raises(ApiError) as refused:
            cluster.patch(path, {"spec": change})
        assert f"{field} does not change" in refused.value.status["message"]
    cluster.patch(path, {"spec": {"consistency": "pinned", "suspend": True, "retry": {"maxAttempts": 3}}})


def test_an_order_does_not_move_shrink_or_come_back_from_release(cluster):
    cluster.create(VOLUMES + STRICT, volume("kept", source={"namespace": "default", "name": "s", "generation": 1,
                                                            "spec": {"uri": "s3://b/", "of": {"tomorrow": 1}}}))
    path = f"{VOLUMES}/kept"
    for change, sentence in [({"nodeName": "n2"}, "cannot be moved"), ({"capacityBytes": 5}, "cannot shrink"),
                             ({"source": {"spec": {"uri": "s3://c/"}}}, "is immutable")]:
        with pytest.raises(ApiError) as refused:
            cluster.patch(path, {"spec": change})
        assert sentence in refused.value.status["message"]
    cluster.patch(path, {"spec": {"capacityBytes": 2 << 30, "release": {"requested": True}}})
    cluster.patch(path, {"spec": {"release": {"requested": False}}})
    with pytest.raises(ApiError) as refused:
        cluster.patch(f"{path}/status", {"status": {"releaseCommitted": True}})
    assert "cannot be withdrawn" in refused.value.status["message"], "a withdrawn release is not committed"
    cluster.patch(path, {"spec": {"release": {"requested": True}}})
    cluster.patch(f"{path}/status", {"status": {"releaseCommitted": True}})
    with pytest.raises(ApiError) as refused:
        cluster.patch(path, {"spec": {"release": None}})
    assert "cannot be withdrawn" in refused.value.status["message"]
    assert cluster.get(path)["spec"]["source"]["spec"]["of"] == {"tomorrow": 1}
    with pytest.raises(ApiError):
        cluster.create(VOLUMES, volume("wrong", volumeID="../../etc"))


def test_a_pools_name_is_its_node_and_pool(cluster):
    cluster.create(POOLS + STRICT, pool())
    with pytest.raises(ApiError) as refused:
        cluster.create(POOLS, pool("n2.default"))
    assert "the name must be <node>.<pool>" in refused.value.status["message"]
    with pytest.raises(ApiError):
        cluster.patch(f"{POOLS}/n1.default/status", {"status": {"path": "relative"}})


def test_the_conditions_of_two_writers_stand_side_by_side(cluster):
    cluster.create(VOLUMES, volume("two"))

    def set_condition(manager, kind):
        body = {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume", "metadata": {"name": "two"},
                "status": {"conditions": [{"type": kind, "status": "True", "reason": "Because", "message": "",
                                           "lastTransitionTime": "2026-11-21T10:00:00.123Z"}]}}
        cluster.request("PATCH", f"{VOLUMES}/two/status?fieldManager={manager}&force=true", body,
                        "application/apply-patch+yaml")

    set_condition("cistern-node", "Mounted")
    set_condition("cistern-controller", "DeletionHeld")
    set_condition("cistern-node", "Mounted")
    assert [c["type"] for c in cluster.get(f"{VOLUMES}/two")["status"]["conditions"]] == ["Mounted", "DeletionHeld"]


def test_kubectl_shows_the_columns_by_the_short_names(cluster):
    name, claim, node = f"pvc-{uuid.uuid4()}", "training/imagenet-trainer-0", "gke-train-a3-pool-1f2e3d4c-x7k9.c.acme-research.internal"
    cluster.create(VOLUMES, volume(name, claim=claim, nodeName=node))
    cluster.patch(f"{VOLUMES}/{name}/status", {"status": {
        "phase": "Hydrating", "hydration": {"objectsFailed": 0},
        "summary": {"node": node.split(".")[0], "progress": "61%", "done": "86 GiB", "total": "140 GiB", "rate": "7.1 GiB/s", "eta": "12 min"}}})
    lines = cluster.kubectl("get", "civ", name).splitlines()
    assert lines[0].split() == ["NAME", "CLAIM", "PHASE", "PROGRESS", "RATE", "ETA", "NODE", "AGE"]
    assert lines[1].split()[1:-1] == [claim, "Hydrating", "61%", "7.1", "GiB/s", "12", "min", node.split(".")[0]]
    assert max(map(len, lines)) <= 160
    wide = cluster.kubectl("get", "civ", "-o", "wide").splitlines()[0]
    assert wide.split() == lines[0].split() + ["DONE", "TOTAL", "ERRORS", "SOURCE", "POOL", "ACCESS", "EXPORTPENDING", "REASON"]
    assert cluster.kubectl("get", "cip").splitlines()[0].split() == [
        "NAME", "NODE", "POOL", "BACKEND", "FREE", "TOTAL", "VOLUMES", "HEALTH", "AGE"]
    assert cluster.kubectl("get", "bsrc").splitlines()[0].split() == [
        "NAME", "URI", "PHASE", "OBJECTS", "SIZE", "SUGGESTED", "VOLUMES", "AGE"]


@pytest.mark.parametrize("spec, said", [
    ({"consistency": "latest"}, 'Unsupported value: "latest": supported values: "pinned"'),
    ({"onEmpty": "skip"}, 'supported values: "fail", "allow"'),
    ({"onChange": "ignore"}, 'supported values: "fail"'),
])
def test_unsupported_value_is_refused_at_apply(cluster, spec, said):
    with pytest.raises(ApiError, match=re.escape(said)):
        cluster.create(SOURCES, source("unsupported", uri="s3://b/p/", **spec))


def test_every_field_of_the_spec_has_a_description(cluster):
    schema = json.loads(cluster.kubectl("get", "crd", "bucketsources.cistern.io", "-o", "json"))
    fields = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert [name for name, field in fields.items() if "description" not in field] == []
