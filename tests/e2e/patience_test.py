# SPDX-License-Identifier: Apache-2.0
"""A hydration that takes longer than the scheduler waits for a pod's volumes (600 s; here a few seconds), and Jobs that are
frozen."""

import random

import pytest

from e2e.lib.machine import eventually
from e2e.lib.orders import pids_of
from e2e.lib.ours import NAMESPACE

PATIENCE = 6  # seconds
PARTS = 7  # of a MiB each, at 256 KiB a second: nearly five times that


@pytest.fixture
def impatient(cluster):
    """The scheduler with this short bind timeout."""
    def start(**more):
        cluster.control.stop("kube-scheduler")
        cluster.control.start_scheduler(**more)

    start(bind_timeout_seconds=PATIENCE)
    yield
    start()


def what_was_begun(cluster, team, claim):
    """The ids that would change if any step had started again."""
    volume = team.volume(claim)
    target = cluster.api.get(f"/api/v1/namespaces/{team.name}/persistentvolumeclaims/{claim}")
    jobs = [j["metadata"]["uid"] for j in cluster.api.list(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
            if volume["metadata"]["name"] in str(j["spec"]["template"])]
    return {"volume": volume["metadata"]["uid"], "id": volume["spec"]["volumeID"], "node": volume["spec"]["nodeName"],
            "selected": target["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "jobs": jobs,
            "began": volume["status"]["hydration"]["startedAt"], "attempt": volume["status"]["hydration"].get("attempt")}


def gave_up(cluster, team, pod):
    """How often the scheduler has, for want of the volume."""
    events = cluster.api.list(f"/api/v1/namespaces/{team.name}/events")
    return sum(e.get("count") or (e.get("series") or {}).get("count") or 1 for e in events
               if e["involvedObject"]["name"] == pod and e["reason"] == "FailedScheduling" and "deadline exceeded" in e["message"])


def test_a_pod_whose_data_comes_later_than_the_scheduler_waits_starts_where_it_is(cluster, store, team, slow, impatient):
    bucket = store.bucket({f"part-{n}": random.Random(n).randbytes(1 << 20) for n in range(PARTS)})
    team.apply(team.source("set", f"s3://{bucket}/"))
    begun = {}
    # The large one leaves no room for a second of its size: to the scheduler, its node looks full from then on.
    for name, size in (("small", "64Mi"), ("large", "7Gi")):
        claim = team.claim(name, "set", size=size)
        claim["spec"]["storageClassName"] = slow
        team.apply(claim, team.pod(name, name, "cat /data/part-* | wc -c; sleep 3600"))
    for name in ("small", "large"):
        eventually(lambda: team.volume(name)["status"]["phase"] == "Hydrating", f"{name} is being filled", 60)
        begun[name] = what_was_begun(cluster, team, name)
        assert len(begun[name]["jobs"]) == 1 and begun[name]["node"] == begun[name]["selected"]
    eventually(lambda: gave_up(cluster, team, "small") >= 2, "the scheduler has given up twice", 60)
    for name in ("small", "large"):
        assert gave_up(cluster, team, name), "the test is of hydrations that take longer"
        assert team.await_pod(name, seconds=120)["spec"]["nodeName"] == begun[name]["node"]
        team.await_logs(name, f"{PARTS << 20}\n")
        ended = what_was_begun(cluster, team, name)
        assert ended.pop("jobs") in ([], begun[name]["jobs"]), "a Job goes when it has ended"
        assert ended.items() <= begun[name].items()
    assert not {"HydrationFailed", "ProvisioningFailed"} & (team.events("small") | team.events("large"))


@pytest.mark.timeout(600)
def test_a_frozen_job_is_killed_and_the_next_one_resumes(cluster, store, team, slow):
    bucket, home = store.bucket({f"part-{n}": random.Random(n).randbytes(1 << 20) for n in range(PARTS)}), store.bucket()
    team.apply(team.source("set", f"s3://{bucket}/"), team.source("home", export={"uri": f"s3://{home}/", "settle": "0s"}))
    claims = {"hydrate": team.claim("filled", "set", size="64Mi"),
              "export": team.claim("written", size="64Mi", **{"cistern.io/export-policy": "home"})}
    for claim in claims.values():
        claim["spec"]["storageClassName"] = slow
    team.apply(*claims.values(), team.pod("reader", "filled", "cat /data/part-* | wc -c; sleep 3600"),
               team.pod("writer", "written", f"head -c {PARTS << 20} /dev/urandom >/data/last"))
    for verb in claims:
        frozen = eventually(lambda: [(node, pid) for node in cluster.nodes.values() for pid in pids_of(node, "cistern", f"{verb}\0--no-progress")],
                            f"the Job of the {verb} runs", 60)
        for node, pid in frozen:
            node.run("kill", "-STOP", pid)
    for verb, claim in claims.items():
        name = claim["metadata"]["name"]
        eventually(lambda: "JobFailed" in team.events(name), f"the {verb} is killed, and its owner is told", 240)
    assert team.await_pod("reader", seconds=120)
    team.await_logs("reader", f"{PARTS << 20}\n")
    eventually(lambda: store.keys(home) == {"last"}, "the export is complete", 120)
