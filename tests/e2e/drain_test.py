# SPDX-License-Identifier: Apache-2.0
"""A node whose volumes have files that are not in the bucket is not drained empty; one that has none is."""

import json
import subprocess

import pytest

from e2e.lib.machine import BIN, eventually
from e2e.lib.ours import NAMESPACE
from e2e.lib.stories import explained

NODE = "node-b"


@pytest.fixture
def drained(cluster, cistern):
    """Starts `kubectl drain` and takes it back at the end."""
    started = []

    def drain():
        started.append(subprocess.Popen([
            BIN / "kubectl", "--kubeconfig", cluster.control.admin, "drain", NODE, "--ignore-daemonsets", "--force",
            "--delete-emptydir-data", "--timeout=120s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield drain
    for one in started:
        one.kill()
        one.wait()
    cluster.kubectl("uncordon", NODE)


def job_pods(cluster, kind):
    return [p for p in cluster.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=cistern.io/job={kind}")
            if p["status"]["phase"] == "Running"]


def evict(cluster, pod):
    """As a drain does it; the refusal."""
    name = pod["metadata"]["name"]
    order = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    done = cluster.kubectl("create", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", "-f", "-",
                           stdin=json.dumps(order), check=False)
    return done.stderr


def on_node(pod):
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    return pod


def test_a_drain_waits_until_what_a_pod_wrote_is_in_the_bucket(cluster, store, team, drained):
    home = f"home-of-{team.name}"  # is not there yet: the first tries fail
    team.apply(team.source("home", export={"uri": f"s3://{home}/", "settle": "0s"}),
               team.claim("work", size="64Mi", **{"cistern.io/export-policy": "home"}),
               on_node(team.pod("train", "work", "echo weights >/data/last; sync; exec sleep 3600")))
    team.await_pod("train")
    held = eventually(lambda: job_pods(cluster, "hold"), "its node is held as long as a pod may write", 30)[0]
    assert held["spec"]["nodeName"] == NODE
    assert held["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    drain = drained()
    explained(cluster, lambda: team.volume("work")["status"]["phase"] == "ExportFailed", "the pod is evicted, and its work is sent", 60)
    assert "would violate the pod's disruption budget" in evict(cluster, held)
    eventually(lambda: [e for e in cluster.api.list("/api/v1/events") if e["reason"] == "ExportBlocksDrain" and
                        e["involvedObject"]["name"] == NODE], "the Node's events say what the drain waits for", 30)
    assert drain.poll() is None
    store.make_bucket(home)
    said, _ = drain.communicate(timeout=120)
    assert drain.returncode == 0, said
    assert store.keys(home) == {"last"} and store.read(home, "last") == b"weights\n"
    assert not job_pods(cluster, "hold") and not job_pods(cluster, "export")


@pytest.fixture
def capped(cluster, cistern):
    """Exports hold a drain for 5 s after they began to fail, and no longer."""
    cistern.install(cluster, export={"drainHold": {"failingFor": "5s"}})
    cistern.await_nodes(cluster)
    yield
    cistern.install(cluster)
    cistern.await_nodes(cluster)


def test_a_failing_export_holds_a_drain_as_long_as_drain_hold_says(cluster, store, team, capped, drained):
    nowhere = f"never-of-{team.name}"  # no such bucket
    team.apply(team.source("home", export={"uri": f"s3://{nowhere}/", "settle": "0s"}),
               team.claim("work", size="64Mi", **{"cistern.io/export-policy": "home"}),
               on_node(team.pod("train", "work", "echo weights >/data/last; sync; exec sleep 3600")))
    team.await_pod("train")
    eventually(lambda: job_pods(cluster, "hold"), "its node is held as long as a pod may write", 30)
    said, _ = (drain := drained()).communicate(timeout=120)
    assert drain.returncode == 0, said
    lost = eventually(lambda: [e for e in cluster.api.list("/api/v1/events") if e["reason"] == "DrainNotHeld" and
                               e["involvedObject"]["name"] == NODE], "the Node's events say what would be lost", 30)
    assert team.volume("work")["spec"]["volumeID"] in lost[0]["message"]
    assert team.volume("work")["status"]["phase"] == "ExportFailed"  # it is kept, and tried again
    store.make_bucket(nowhere)
    eventually(lambda: store.keys(nowhere) == {"last"}, "the export is retried, and the file arrives", 150)


def test_a_node_that_owes_nothing_is_drained_at_once(cluster, team, drained):
    team.apply(team.claim("scratch", size="64Mi"), on_node(team.pod("user", "scratch", "echo 1 >/data/x; exec sleep 3600")))
    team.await_pod("user")
    drain = drained()
    said, _ = drain.communicate(timeout=60)
    assert drain.returncode == 0, said
    assert "disruption budget" not in "\n".join(line for line in said.splitlines() if "cistern-controller" not in line)
