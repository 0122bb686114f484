# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a user in a cluster as it is installed, with its rights: each is an event on the claim and on its pod within ten
seconds. integration/populate/wrong_inputs_test.py has many more, against the controller alone."""

import json
import time

from e2e.lib.machine import eventually

SECONDS = 10
REF = {"apiGroup": "cistern.io", "kind": "BucketSource", "name": "data"}

WRONG = {
    "source": ({"dataSourceRef": {**REF, "name": "daat"}}, {}, "SourceNotFound"),
    "kind": ({"dataSourceRef": {**REF, "kind": "BucketSorce"}}, {}, "DataSourceInvalid"),
    "group": ({"dataSourceRef": {**REF, "apiGroup": "cistern.dev"}}, {}, "DataSourceInvalid"),
    "namespace": ({"dataSourceRef": {**REF, "namespace": "other"}}, {}, "ClaimInvalid"),
    "field": ({"dataSource": REF}, {}, "ClaimInvalid"),
    "mode": ({"accessModes": ["ReadWriteMany"], "dataSourceRef": REF}, {}, "ClaimInvalid"),
    "class": ({"storageClassName": "cistrn", "dataSourceRef": REF}, {}, "ClassNotFound"),
    # The provisioner says it, in the namespace of Cistern.
    "annotation": ({"dataSourceRef": REF}, {"cistern.io/hydration": "gaet"}, "ProvisioningFailed"),
}


def test_a_mistake_in_a_claim_is_an_event_on_claim_and_pod_however_it_is_applied(cluster, team, store):
    team.apply(team.source("data", f"s3://{store.bucket({'a': b'a'})}/"))
    claims = []
    for name, (spec, annotations, _) in WRONG.items():
        claim = team.claim(name, **annotations)
        claim["spec"].update(spec)
        claims += [claim, team.pod(name, name, "sleep 1")]
    began = time.monotonic()
    cluster.kubectl("apply", "--server-side", "-n", team.name, "-f", "-",
                    stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": claims}))

    def missing():
        told = {(e["involvedObject"]["kind"], e["involvedObject"]["name"], e["reason"])
                for e in cluster.api.list(f"/api/v1/namespaces/{team.name}/events")}
        return {(kind, name, reason) for name, (_, _, reason) in WRONG.items() for kind in ("PersistentVolumeClaim", "Pod")} - told

    took = {}
    def all_told():
        for one in missing():
            took[one] = time.monotonic() - began
        return not missing()

    eventually(all_told, "each has its event", 30)
    assert max(took.values(), default=0) < SECONDS, took


def test_a_missing_export_bucket_is_an_event_before_the_pod_has_worked(cluster, team, store):
    bucket = store.bucket({"a": b"a"})
    team.apply(team.source("data", f"s3://{bucket}/", export={"uri": "s3://not-made/run/"}), team.claim("data", "data", size="64Mi"),
               team.pod("data", "data", "sleep 3600"))
    team.await_pod("data")
    eventually(lambda: "ExportBucketNotFound" in team.events("data"), "the claim has the event", SECONDS)
    told = json.loads(cluster.kubectl("get", "bsrc", "data", "-n", team.name, "-o", "json"))["status"]
    assert told["phase"] == "Degraded"
    assert {"type": "Exportable", "status": "False", "reason": "ExportBucketNotFound"}.items() <= \
        next(c for c in told["conditions"] if c["type"] == "Exportable").items()
