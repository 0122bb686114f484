# SPDX-License-Identifier: Apache-2.0
"""From kubectl apply to a running pod and back: what a user sees of Cistern in a real cluster."""

import hashlib
import random

import pytest

from e2e.lib.machine import eventually
from e2e.lib.stories import nothing_is_left


def test_claim_is_filled_before_its_pod_runs_and_checkpoint_is_exported(cluster, store, team):
    data = {f"data/part-{n:03}": random.Random(n).randbytes(200_000) for n in range(40)}
    bucket, home = store.bucket(data), store.bucket()
    digest = hashlib.sha256(b"".join(data[key] for key in sorted(data))).hexdigest()
    team.apply(team.source("set", f"s3://{bucket}/data/", export={"uri": f"s3://{home}/run/", "include": ["ckpt/**"],
                                                                  "settle": "0s"}),
               team.claim("set", "set"),
               team.pod("train", "set", "cat /data/part-* | sha256sum; mkdir /data/ckpt; echo weights >/data/ckpt/last; "
                                        "sync; sleep 3600"))
    team.await_pod("train")
    eventually(lambda: digest in team.logs("train"), "the pod reads what the bucket has", 20)
    volume = team.volume("set")
    assert volume["status"]["hydration"]["objectsDone"] == 40 and volume["status"]["phase"] == "Ready"
    table = cluster.kubectl("get", "civ")
    assert f"{team.name}/set" in table and "100%" in table
    assert {"HydrationStarted", "HydrationFinished"} <= team.events("set")
    team.delete("pod/train", "pvc/set")
    nothing_is_left(cluster)
    assert store.keys(home) == {"run/ckpt/last"} and store.read(home, "run/ckpt/last") == b"weights\n"


def test_an_empty_claim_needs_no_source(cluster, team):
    team.apply(team.claim("blank"), team.pod("scratch", "blank", "echo x >/data/x && cat /data/x; sleep 3600"))
    team.await_pod("scratch")
    team.await_logs("scratch", "x\n")
    team.delete("pod/scratch", "pvc/blank")


def test_a_claim_that_is_deleted_before_any_pod_and_a_source_that_goes_first_leave_nothing(cluster, store, team):
    bucket = store.bucket({"a": b"1" * 1000})
    team.apply(team.source("set", f"s3://{bucket}/"), team.claim("never", "set"), team.claim("used", "set"),
               team.pod("reader", "used", "cat /data/a | wc -c; sleep 3600"))
    team.await_pod("reader")
    team.delete("bucketsource/set")
    team.delete("pod/reader", "pvc/used", "pvc/never")


@pytest.fixture
def bind(cluster):
    """A class whose volumes are mounted without FUSE."""
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "bind"},
                   "provisioner": "csi.cistern.io", "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"access": "bind"}})
    yield "bind"
    cluster.kubectl("delete", "storageclass", "bind")


def test_a_writable_bind_mount_is_filled_and_each_change_of_its_pod_is_exported(cluster, store, team, bind):
    bucket, home = store.bucket({"data/part": b"from the bucket\n"}), store.bucket()
    claim = team.claim("set", "set", size="64Mi")
    claim["spec"]["storageClassName"] = bind
    team.apply(team.source("set", f"s3://{bucket}/data/", export={"uri": f"s3://{home}/run/", "include": ["ckpt/**"],
                                                                  "settle": "0s"}), claim,
               team.pod("train", "set", "cat /data/part; mkdir /data/ckpt; cd /data/ckpt; echo weights >new; mv new last; "
                                        "echo long >cut; echo s >cut; echo gone >gone; rm gone; sleep 3600"))
    team.await_pod("train")
    team.await_logs("train", "from the bucket\n")
    assert team.volume("set")["status"]["access"] == "bind"
    mounts = team.exec("train", "cat", "/proc/mounts").splitlines()
    assert [line.split()[2] for line in mounts if line.split()[1] == "/data"] == ["xfs"]
    with pytest.raises(RuntimeError, match="No space left"):
        team.exec("train", "dd", "if=/dev/zero", "of=/data/large", "bs=1M", "count=100")
    team.exec("train", "rm", "/data/large")
    team.delete("pod/train", "pvc/set")
    nothing_is_left(cluster)
    assert {key: store.read(home, key) for key in store.keys(home)} == {"run/ckpt/last": b"weights\n", "run/ckpt/cut": b"s\n"}
