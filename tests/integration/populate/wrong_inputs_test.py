# SPDX-License-Identifier: Apache-2.0
"""Mistakes in manifests, rights and networks: each gets the object, the cause and the next step, from the API server at once, or
from the controller within seconds."""

import base64
import json
import re
import time

import pytest

from integration.lib.claims import API, OURS, running_world, wait_for
from servers import versitygw

NAMESPACE = "team"


@pytest.fixture(scope="module")
def store():
    with versitygw.Versitygw() as server:
        server.make_bucket("bucket")
        (server.data / "bucket/data").mkdir()
        (server.data / "bucket/data/part-0").write_bytes(b"0")
        yield server


@pytest.fixture(scope="module")
def world():
    """The controller with its broker: the namespace lets it read Secrets."""
    with running_world(nodes=1, flags=["--broker-listen=127.0.0.1:0", "--allow-address=127.0.0.1/32"]) as w:
        w.every_node(hydrates=False)
        w.make_namespace(NAMESPACE)
        yield w


def manifest(kind, name, spec, version="v1", annotations=None):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def source(name, **spec):
    return manifest("BucketSource", name, spec, "cistern.io/v1alpha1")


def applied(world, *objects):
    whole = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    return world.cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(whole))


# ---- refused at apply

EXPORT = {"uri": "s3://out/"}
RELATIVE = "write a pattern relative to the prefix, such as images/**, without a slash at either end"
SUB_PATH = "write a path relative to the volume, such as images/train: no slash at either end, no . and .."
DURATION = "write a duration such as 250ms, 30m or 1h30m"


@pytest.mark.parametrize("spec, said", [
    ({"uri": "llama-70b"}, "spec.uri: Invalid value: \"string\": write s3://bucket/prefix/ or gs://bucket/prefix/"),
    ({"uri": "gcs://bucket/x/"}, "write s3://bucket/prefix/ or gs://bucket/prefix/"),
    ({"uri": "https://bucket.s3.amazonaws.com/x/"}, "write s3://bucket/prefix/ or gs://bucket/prefix/"),
    ({"uri": "s3://MyBucket/x/"}, "bucket names are in lower case"),
    ({"URI": "s3://bucket/"}, "unknown field \"spec.URI\""),
    ({"uri": "s3://bucket/", "serviceAccount": "x"}, "unknown field \"spec.serviceAccount\""),
    ({}, "set uri, sources or export"),
    ({"uri": "s3://bucket/", "sources": [{"uri": "s3://bucket/"}]}, "set uri or sources, not both"),
    ({"sources": [{"uri": "s3://bucket/"}, {"uri": "gs://bucket/"}]}, "sources must have one scheme"),
    ({"uri": "s3://bucket/", "consistency": "latest"}, "spec.consistency: Unsupported value: \"latest\": supported values: \"pinned\""),
    ({"uri": "s3://bucket/", "onEmpty": "ignore"}, "supported values: \"fail\", \"allow\""),
    ({"uri": "s3://bucket/", "endpoint": "minio:9000"}, "spec.endpoint: Invalid value: \"string\": write a URL such as https://"),
    ({"uri": "s3://bucket/", "region": "eu_west_1"}, "write the name of a region, such as eu-west-1"),
    ({"uri": "s3://bucket/", "caBundle": "/etc/ca.pem"}, "write the text of the certificates"),
    ({"uri": "s3://bucket/", "secretRef": "keys"}, "spec.secretRef in body must be of type object"),
    ({"uri": "s3://bucket/", "retry": {"maxElapsed": "30 minutes"}}, DURATION),
    ({"uri": "s3://bucket/", "shard": {"index": 4, "count": 4}}, "shard.index must be below shard.count"),
    ({"uri": "s3://bucket/", "identity": {"method": "IRSA"}}, "spec.identity.method: Unsupported value: \"IRSA\": supported values: \"auto\""),
    ({"uri": "gs://bucket/", "serviceAccountName": "x", "identity": {"method": "wif"}}, "identity.method wif needs identity.provider"),
    ({"uri": "gs://bucket/", "serviceAccountName": "x", "identity": {"method": "irsa"}}, "irsa and podIdentity are for s3://"),
    ({"uri": "s3://bucket/", "serviceAccountName": "x", "identity": {"method": "gke"}}, "gke and wif for gs://"),
    ({"uri": "s3://bucket/", "identity": {"method": "podIdentity"}}, "this identity.method needs serviceAccountName"),
    ({"uri": "s3://bucket/", "identity": {"method": "secret"}}, "identity.method secret needs secretRef"),
    ({"uri": "s3://bucket/", "include": ["/images/*"]}, RELATIVE),
    ({"uri": "s3://bucket/", "include": ["s3://bucket/images/*"]}, RELATIVE),
    ({"uri": "s3://bucket/", "exclude": ["tmp/"]}, RELATIVE),
    ({"uri": "s3://bucket/", "priority": ["/config.json"]}, RELATIVE),
    ({"sources": [{"uri": "s3://bucket/a/", "exclude": ["tmp/"]}]}, RELATIVE),
    ({"sources": [{"uri": "s3://bucket/a/", "include": ["gs://bucket/a/*"]}]}, RELATIVE),
    ({"sources": [{"uri": "s3://bucket/a/", "include": ["/a"]}]}, RELATIVE),
    ({"sources": [{"uri": "bucket/a/"}]}, "spec.sources[0].uri: Invalid value: \"string\": write s3://bucket/prefix/"),
    ({"sources": [{"uri": "s3://bucket/a/", "subPath": "../b"}]}, SUB_PATH),
    ({"sources": [{"uri": "s3://bucket/a/", "subPath": "/b"}]}, SUB_PATH),
    ({"uri": "s3://bucket/", "layout": {"subPath": "a/./b"}}, SUB_PATH),
    ({"uri": "s3://bucket/", "export": {**EXPORT, "marker": "done/_SUCCESS"}}, "write the name of a file, such as _SUCCESS"),
    ({"uri": "s3://bucket/", "export": {"include": ["a"]}}, "spec.export.uri: Required value"),
    ({"uri": "s3://bucket/", "export": {**EXPORT, "include": ["/ckpt/*"]}}, "such as checkpoints/**, without a slash at either end"),
    ({"uri": "s3://bucket/", "export": {**EXPORT, "trigger": ["Manual"]}}, "add OnUnpublish or OnRelease"),
    ({"uri": "s3://bucket/", "export": {**EXPORT, "settle": "5 s"}}, DURATION)])
def test_a_mistyped_source_is_refused_at_apply_with_the_next_step(world, spec, said):
    with pytest.raises(RuntimeError) as refused:
        applied(world, source("wrong", **spec))
    assert said in str(refused.value), refused.value


# ---- accepted by the API server: an event on the claim and on its pod

CLASSES = {"typo": {"concurency": "64"}, "value": {"access": "fues"}, "field": {"uri": "s3://bucket/"}, "poolless": {"pool": "nvme"},
           "unit": {"bandwidth": "500 MBps"}, "range": {"concurrency": "4096"}, "bounds": {"minVolumeSize": "10Ti", "maxVolumeSize": "1Ti"},
           "blank": {"hydration": "none"}, "far": {"type": "ssd"}, "pool-empty": {"pool": ""}, "least": {"minVolumeSize": "10Ti"}, "most": {"maxVolumeSize": "32Mi"},
           "fstype": {"csi.storage.k8s.io/fstype": "ext4"}, "secret": {"csi.storage.k8s.io/node-stage-secret-name": "x"}}


def claim(name, cls="cistern", annotations=None, **spec):
    ref = {"apiGroup": "cistern.io", "kind": "BucketSource", "name": "data"}
    return manifest("PersistentVolumeClaim", name, {
        "storageClassName": cls, "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "64Mi"}},
        **({} if "dataSource" in spec else {"dataSourceRef": ref}), **spec}, annotations=annotations)


def ref(**fields):
    return {"dataSourceRef": {"apiGroup": "cistern.io", "kind": "BucketSource", "name": "data", **fields}}


CLAIMS = {
    "class-typo": ({"cls": "typo"}, "ClassInvalid", "StorageClass typo: unknown parameter 'concurency'; the nearest known one is"),
    "class-far": ({"cls": "far"}, "ClassInvalid", "StorageClass far: unknown parameter 'type' (CIS2001, INVALID); correct or remove the name"),
    "class-value": ({"cls": "value"}, "ClassInvalid", "'access': invalid value 'fues': expected one of auto fuse bind"),
    "class-field": ({"cls": "field"}, "ClassInvalid", "'uri' is a field of BucketSource, not a parameter"),
    "class-pool": ({"cls": "poolless"}, "PoolNotFound", "StorageClass poolless: no node has a pool 'nvme'"),
    "class-elsewhere": ({"cls": "elsewhere"}, "PoolNotFound", "elsewhere: no node of its allowedTopologies has a pool 'default'"),
    "class-immediate": ({"cls": "immediate"}, "ImmediateBindingUnsupported", "create a class with WaitForFirstConsumer"),
    "class-foreign": ({"cls": "foreign"}, "ClassUnsupported", "use a class of csi.cistern.io"),
    "ref-name": (ref(name="daat"), "SourceNotFound", "BucketSource team/daat: not found (CIS5201, NOT_FOUND); create it"),
    "ref-blank": ({"cls": "blank", **ref(name="daat")}, "SourceNotFound",
                  "team/daat: not found (CIS5201, NOT_FOUND); create it; the claim waits (without data and export: create the claim again"),
    "ref-kind": (ref(kind="BucketSorce"), "DataSourceInvalid", "names kind 'BucketSorce' of apiGroup 'cistern.io', which nothing fills"),
    "ref-group": (ref(apiGroup="cistern.dev"), "DataSourceInvalid", "delete the claim and create it again with a dataSourceRef of"),
    "ref-namespace": (ref(namespace="other"), "ClaimInvalid", "dataSourceRef.namespace: the API server dropped dataSourceRef: its feature Cross"),
    "ref-old": ({"dataSource": ref()["dataSourceRef"]}, "ClaimInvalid", "dataSource: the API server dropped it: it takes claims and snapshots only"),
    "ref-old-kind": ({"dataSource": ref(kind="BucketSorce")["dataSourceRef"]}, "ClaimInvalid", "dataSource: the API server dropped it"),
    "mode-many": ({"accessModes": ["ReadWriteMany"]}, "ClaimInvalid", "access mode ReadWriteMany: unsupported: a volume is on the disk of one"),
    "mode-block": ({"volumeMode": "Block"}, "ClaimInvalid", "delete the claim and create it again with volumeMode Filesystem"),
    "annotation-name": ({"annotations": {"cistern.io/hydraton": "gate"}}, "ClaimInvalid",
                        "unknown annotation 'cistern.io/hydraton'; the nearest known one is 'cistern.io/hydration'"),
    "class-unit": ({"cls": "unit"}, "ClassInvalid", "'bandwidth': invalid value '500 MBps': expected a quantity of bytes such as 512Mi"),
    "class-range": ({"cls": "range"}, "ClassInvalid", "'concurrency': invalid value '4096': expected a whole number from 1 to 512"),
    "class-bounds": ({"cls": "bounds"}, "ClassInvalid", "StorageClass bounds: 'minVolumeSize' is more than 'maxVolumeSize'"),
    "class-pool-empty": ({"cls": "pool-empty"}, "ClassInvalid", "StorageClass pool-empty: 'pool' is empty"),
    "class-least": ({"cls": "least"}, "PoolsFull", "10Ti requested: the largest pool 'default' has 90.0 GiB free"),
    "class-most": ({"cls": "most"}, "ProvisioningFailed", "required_bytes 67108864: too large: maxVolumeSize of this class is 32.0 MiB"),
    "class-fstype": ({"cls": "fstype"}, "ClassInvalid", "the driver chooses the file system"),
    "class-secret": ({"cls": "secret"}, "ProvisioningFailed", "NodeStage secrets specified, Both must be specified"),
    "class-missing": ({"cls": "cistrn"}, "ClassNotFound", "StorageClass 'cistrn': not found (CIS5212, NOT_FOUND); create the class, or"),
    "class-none": ({"cls": ""}, "ClassNotFound", "StorageClass '': not found"),
    "clone": ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "class-typo"}}, "ClaimInvalid",
              "dataSource: a volume cannot be cloned (CIS5210, INVALID); delete the claim and create it again with a BucketSource"),
    "snapshot": ({"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}}, "ClaimInvalid",
                 "dataSource: there are no snapshots of volumes"),
    "selector": ({"selector": {"matchLabels": {"a": "b"}}}, "ClaimInvalid", "delete the claim and create it again without selector"),
    "annotation-value": ({"annotations": {"cistern.io/hydration": "gaet"}}, "ProvisioningFailed",
                         "annotation cistern.io/hydration: 'hydration': invalid value 'gaet': expected one of eager gate none"),
    "source-annotation": ({"dataSourceRef": None, "annotations": {"cistern.io/source": "daat"}}, "SourceNotFound",
                          "annotation cistern.io/source: BucketSource team/daat: not found (CIS5201, NOT_FOUND); create it; the claim"),
    "policy-missing": ({"annotations": {"cistern.io/export-policy": "out"}}, "SourceNotFound",
                       "annotation cistern.io/export-policy: BucketSource team/out: not found (CIS5201, NOT_FOUND); create it; the claim"),
    "policy-blank": ({"dataSourceRef": None, "annotations": {"cistern.io/export-policy": "out"}}, "SourceNotFound", "BucketSource team/out: not found"),
    "policy-empty": ({"annotations": {"cistern.io/export-policy": "data"}}, "SourceInvalid",
                     "annotation cistern.io/export-policy: BucketSource team/data has no export: add spec.export to it"),
    "attributes-class": ({"volumeAttributesClassName": "nope"}, "ProvisioningFailed", "\"nope\" not found"),
    "size": ({"resources": {"requests": {"storage": "900Ti"}}}, "PoolsFull", "900Ti requested: the largest pool 'default' has 90.0 GiB free"),
}


def pod(name, claim_name, block):
    mounted = {"volumeDevices": [{"name": "v", "devicePath": "/dev/v"}]} if block else {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    return manifest("Pod", name, {"containers": [{"name": "c", "image": "x", **mounted}],
                                  "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]})


@pytest.fixture(scope="module")
def claims(world):
    """All of them with a pod each, so that one wait is for all."""
    for name, parameters in CLASSES.items():
        world.make_class(name, **parameters)
    world.make_class("immediate", mode="Immediate")
    world.make_class("elsewhere", allowed={"topology.kubernetes.io/zone": ["mars"]})
    world.make_class("foreign", provisioner="csi.cistern.oi")
    applied(world, source("data", uri="s3://bucket/data/", identity={"method": "anonymous"}))
    applied(world, *(claim(name, **changes) for name, (changes, _, _) in CLAIMS.items()),
            *(pod(name, name, name == "mode-block") for name in CLAIMS))
    return world


@pytest.mark.parametrize("name", CLAIMS)
def test_a_mistake_in_a_claim_is_an_event_on_claim_and_pod_and_no_volume_is_made(claims, name):
    _, reason, said = CLAIMS[name]

    def told():
        found = {e["involvedObject"]["kind"]: e["message"] for e in claims.events(NAMESPACE, reason)
                 if e["involvedObject"]["name"] == name}
        return found if len(found) == 2 else None

    messages = wait_for(told, what=f"{reason} on claim and pod")
    assert said in messages["PersistentVolumeClaim"] and messages["Pod"].startswith(f"claim {name}: "), messages
    assert claims.claim(NAMESPACE, name)["status"]["phase"] == "Pending"
    assert not [v for v in claims.volumes() if v["spec"].get("claim") == f"{NAMESPACE}/{name}"]


@pytest.mark.parametrize("where", ["claim", "class"])
def test_a_missing_source_of_a_claim_that_is_not_filled_gives_no_event(claims, where):
    name = f"blank-{where}"
    annotations = {"cistern.io/source": "daat", **({"cistern.io/hydration": "none"} if where == "claim" else {})}
    if where == "class":
        claims.make_class(name, hydration="none")
    applied(claims, claim(name, "cistern" if where == "claim" else name, dataSourceRef=None, annotations=annotations),
            pod(name, name, False))
    wait_for(lambda: claims.claim(NAMESPACE, name)["status"]["phase"] == "Bound")
    assert not [e for e in claims.events(NAMESPACE, "SourceNotFound") if e["involvedObject"]["name"] == name]


def test_a_source_that_is_created_right_after_its_claim_gives_no_event(claims):
    claims.make_claim(NAMESPACE, "before", "later")
    claims.make_pod(NAMESPACE, "before", "before")
    wait_for(lambda: " claim=before " in claims.log())
    time.sleep(0.5)
    applied(claims, source("later", uri="s3://bucket/data/", identity={"method": "anonymous"}))
    wait_for(lambda: [v for v in claims.volumes() if v["spec"].get("claim") == f"{NAMESPACE}/before"])
    assert not [e for e in claims.events(NAMESPACE, "SourceNotFound") if e["involvedObject"]["name"] == "before"]


def on_claim_and_pod(world, name, reason):
    """Messages of an event that is on the claim and on its pod, which have the same name."""
    found = {e["involvedObject"]["kind"]: e["message"] for e in world.events(NAMESPACE, reason) if e["involvedObject"]["name"] == name}
    return found if len(found) == 2 else None


@pytest.mark.parametrize("source_name", ["data", None])
def test_a_pod_that_names_its_node_has_an_event_on_pod_and_claim(claims, source_name):
    name = f"bypass-{source_name or 'blank'}".lower()
    claims.make_claim(NAMESPACE, name, source_name)
    claims.make_pod(NAMESPACE, name, name, nodeName="node-0")
    messages = wait_for(lambda: on_claim_and_pod(claims, name, "PodNotScheduled"))
    assert "Create the pod again with nodeSelector kubernetes.io/hostname in place of nodeName" in messages["Pod"]
    claims.end_pod(NAMESPACE, name)
    claims.make_pod(NAMESPACE, name, name, nodeSelector={"kubernetes.io/hostname": "node-0"})
    wait_for(lambda: [v for v in claims.volumes() if v["spec"].get("claim") == f"{NAMESPACE}/{name}"])


def test_a_volume_that_is_deleted_by_hand_while_it_is_filled_says_so_on_claim_and_pod(claims):
    claims.make_claim(NAMESPACE, "by-hand")
    claims.make_pod(NAMESPACE, "by-hand", "by-hand")
    volume, = wait_for(lambda: [v for v in claims.volumes() if v["spec"].get("claim") == f"{NAMESPACE}/by-hand"])
    claims.cluster.delete(f"{API}/cisternvolumes/{volume['metadata']['name']}")
    messages = wait_for(lambda: on_claim_and_pod(claims, "by-hand", "DeletionHeld"))
    assert "was deleted by hand, which ends its hydration: delete the claim and create it again" in messages["Pod"]


def test_a_claim_of_a_cluster_without_any_pool_says_so_on_claim_and_pod():
    with running_world(nodes=0) as world:
        world.make_namespace("empty")
        world.make_claim("empty")
        world.make_pod("empty")

        def told():
            found = {e["involvedObject"]["kind"]: e["message"] for e in world.events("empty", "PoolsPending")}
            return found if len(found) == 2 else None

        said = wait_for(told)["Pod"]
        assert "waiting for the node drivers: none has reported a pool yet" in said and "pools[].nodeSelector" in said


def test_a_claim_of_a_suspended_source_says_what_it_waits_for(claims):
    applied(claims, source("paused", uri="s3://bucket/data/", identity={"method": "anonymous"}, suspend=True),
            claim("paused", **ref(name="paused")), pod("paused", "paused", False))

    def told():
        found = {e["involvedObject"]["kind"]: e["message"] for e in claims.events(NAMESPACE, "SourceSuspended")}
        return found if len(found) == 2 else None

    assert "set spec.suspend of the BucketSource to false" in wait_for(told)["Pod"]
    claims.cluster.patch(f"{API}/namespaces/{NAMESPACE}/bucketsources/paused", {"spec": {"suspend": False}})
    volume, = (v["spec"]["volumeID"] for v in claims.volumes() if v["spec"].get("claim") == f"{NAMESPACE}/paused")
    wait_for(lambda: [j for j in claims.jobs() if j["metadata"]["labels"]["cistern.io/volume"] == volume])


@pytest.mark.parametrize("name, resource", [("job", "count/jobs.batch"), ("pod", "pods")])
def test_a_claim_whose_job_or_its_pod_a_quota_refuses_says_so_on_claim_and_pod(claims, name, resource):
    quotas = f"/api/v1/namespaces/{OURS}/resourcequotas"
    claims.cluster.create(quotas, {"metadata": {"name": name}, "spec": {"hard": {resource: "0"}}})
    try:
        wait_for(lambda: claims.cluster.get(f"{quotas}/{name}").get("status", {}).get("hard"))
        applied(claims, claim(f"refused-{name}", **ref(name="data")), pod(f"refused-{name}", f"refused-{name}", False))

        def told():
            found = {e["involvedObject"]["kind"]: e["message"] for e in claims.events(NAMESPACE, "JobRefused")
                     if e["involvedObject"]["name"] == f"refused-{name}"}
            return found if len(found) == 2 else None

        messages = wait_for(told, what="JobRefused on claim and pod")
        assert f"exceeded quota: {name}" in messages["PersistentVolumeClaim"] and "administrator" in messages["Pod"], messages
    finally:
        claims.cluster.delete(f"{quotas}/{name}")
    volume, = (v["spec"]["volumeID"] for v in claims.volumes() if v["spec"].get("claim") == f"{NAMESPACE}/refused-{name}")
    wait_for(lambda: [j for j in claims.jobs() if j["metadata"]["labels"]["cistern.io/volume"] == volume])


def lists_of_pods(world):
    lines = world.cluster.kubectl("get", "--raw", "/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("apiserver_request_total{")
               and all(word in line for word in ('resource="pods"', 'scope="namespace"', 'verb="LIST"')))


def test_many_claims_with_a_mistake_leave_requests_to_other_namespaces():
    with running_world(nodes=1) as world:
        world.make_namespace("noisy")
        world.stop_player()  # the played nodes list pods, too
        before, began = lists_of_pods(world), time.monotonic()
        for i in range(250):
            world.make_claim("noisy", f"claim-{i}", source="missing")
        wait_for(lambda: len(set(re.findall(r" claim=(claim-\d+) ", world.log()))) == 250)
        spent, seconds = lists_of_pods(world) - before, time.monotonic() - began
        assert spent <= 20 + seconds + 2, (spent, seconds)  # a burst, then one a second: not one for each new claim
        time.sleep(5)
        before = lists_of_pods(world)
        time.sleep(12)
        assert lists_of_pods(world) - before < 60  # 250 claims look for their pods every ten seconds


# ---- rights and networks: the status of the source

SOURCES = {
    "secret-missing": ({"secretRef": {"name": "kays"}}, "CIS1906", "Secret 'team/kays': not found"),
    "secret-half": ({"secretRef": {"name": "half"}}, "CIS1907", "Secret 'team/half': no access_key_id or secret_access_key"),
    "secret-wrong": ({"secretRef": {"name": "wrong"}}, "CIS1401", "as secret team/wrong: "),
    "account-missing": ({"secretRef": None, "endpoint": None, "serviceAccountName": "nobody"}, "CIS1906", "'team/nobody'"),
    "account-plain": ({"secretRef": None, "endpoint": None, "serviceAccountName": "plain"}, "CIS1904",
                      "kubectl annotate serviceaccount -n team plain cistern.io/allow-bucket-access=true"),
    "account-untrusted": ({"secretRef": None, "serviceAccountName": "plain"}, "CIS1912",
                          "BucketSource 'team/account-untrusted': the endpoint is not trusted for a service account"),
    "account-role": ({"secretRef": None, "endpoint": None, "serviceAccountName": "consenting"}, "CIS1908",
                     "no annotation eks.amazonaws.com/role-arn"),
    "identity-missing": ({"secretRef": None}, "CIS1908",
                         "BucketSource 'team/identity-missing': the source has no identity (CIS1908, DENIED); set serviceAccountName, secretRef or identity.method: anonymous"),
    "bucket-missing": ({"uri": "s3://nobucket/x/"}, "CIS1405", "there is no bucket 'nobucket'"),
    "prefix-typo": ({"uri": "s3://bucket/daat/"}, "CIS1530", "'s3://bucket/daat/': no object is below this prefix"),
    "prefix-slash": ({"uri": "s3://bucket/data"}, "CIS1406", "for all objects below a prefix write s3://bucket/data/"),
    "prefix-wildcard": ({"uri": "s3://bucket/data/*"}, "CIS1406", "a URI has no wildcards"),
    "prefix-query": ({"uri": "s3://bucket/data/?versionId=3"}, "CIS1406", "no object has this key"),
    "prefix-double": ({"uri": "s3://bucket//data/"}, "CIS1530", "no object is below this prefix"),
    "secret-names": ({"secretRef": {"name": "renamed"}}, "CIS1907", "no access_key_id or secret_access_key"),
    "anonymous": ({"secretRef": None, "identity": {"method": "anonymous"}}, "CIS1403", "as anonymous: s3://bucket/data/: 403 AccessDenied"),
    "secret-scheme": ({"uri": "gs://bucket/data/", "secretRef": {"name": "keys"}, "endpoint": None}, "CIS1907", "no service_account.json"),
    "port": ({"endpoint": "http://127.0.0.1:1"}, "CIS1611", "cannot connect to 'http://127.0.0.1:1': Connection refused"),
    "name": ({"endpoint": "http://minio.nowhere.invalid:9000"}, "CIS1611", "cannot find the address of 'http://minio.nowhere.invalid:9000'"),
    "https": ({"endpoint": "https"}, "CIS1619", "does not use TLS"),
    "metadata-server": ({"endpoint": "http://169.254.169.254"}, "CIS1617", "endpoints.allowAddresses of the chart"),
}


@pytest.mark.parametrize("how", [["create"], ["apply", "--server-side"]], ids=lambda how: how[-1])
@pytest.mark.parametrize("name", ["ref-old", "ref-namespace"])
def test_a_dropped_data_source_is_an_event_however_the_claim_was_made(claims, name, how):
    changes, reason, said = CLAIMS[name]
    own = f"{name}-{how[0]}"
    claims.cluster.kubectl(*how, "-n", NAMESPACE, "-f", "-", stdin=json.dumps(claim(own, **changes)))
    message = wait_for(lambda: [e["message"] for e in claims.events(NAMESPACE, reason) if e["involvedObject"]["name"] == own])[0]
    assert said in message and "create it again with a dataSourceRef" in message


@pytest.fixture(scope="module")
def sources(world, store):
    core = f"/api/v1/namespaces/{NAMESPACE}"
    keys = {"keys": (versitygw.ACCESS_KEY, versitygw.SECRET_KEY), "wrong": (versitygw.ACCESS_KEY, "wrong"), "half": ("x", "")}
    for name, pair in keys.items():
        world.cluster.create(f"{core}/secrets", {"metadata": {"name": name}, "data": {
            k: base64.b64encode(v.encode()).decode() for k, v in zip(("access_key_id", "secret_access_key"), pair) if v}})
    for name, annotations in {"plain": {}, "consenting": {"cistern.io/allow-bucket-access": "true"}}.items():
        world.cluster.create(f"{core}/serviceaccounts", {"metadata": {"name": name, "annotations": annotations}})
    world.cluster.create(f"{core}/secrets", {"metadata": {"name": "renamed"}, "stringData": {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}})
    base = {"uri": "s3://bucket/data/", "endpoint": store.url, "region": versitygw.REGION, "pathStyle": True, "secretRef": {"name": "keys"}}
    made = []
    for name, (changes, _, _) in SOURCES.items():
        spec = {k: v for k, v in {**base, **changes}.items() if v is not None}
        if spec.get("endpoint") == "https":
            spec["endpoint"] = store.url.replace("http:", "https:")
        made.append(source(name, **spec))
    applied(world, *made)
    return world


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_cannot_be_read_says_so_before_any_volume(sources, name):
    _, number, said = SOURCES[name]

    def status():
        found = sources.cluster.get(f"{API}/namespaces/{NAMESPACE}/bucketsources/{name}").get("status", {})
        return found if found.get("phase") == "Degraded" else None

    told = wait_for(status, what=f"{name} is Degraded")["lastError"]
    assert told["id"] == number and said in told["message"], told


def test_a_secret_that_is_created_after_its_source_is_seen_within_seconds(sources, store):
    path = f"{API}/namespaces/{NAMESPACE}/bucketsources/early"
    phase = lambda: sources.cluster.get(path).get("status", {}).get("phase")  # noqa: E731
    applied(sources, source("early", uri="s3://bucket/data/", endpoint=store.url, region=versitygw.REGION, pathStyle=True,
                            secretRef={"name": "late"}))
    wait_for(lambda: phase() == "Degraded", what="Degraded without its Secret")
    sources.cluster.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": "late"}, "stringData": {
        "access_key_id": versitygw.ACCESS_KEY, "secret_access_key": versitygw.SECRET_KEY}})
    wait_for(lambda: phase() == "Ready", what="Ready with it")
