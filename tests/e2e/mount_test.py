# SPDX-License-Identifier: Apache-2.0
"""Volumes of a node in pods: what they see, also after a reboot."""

import pytest

from e2e.lib.machine import eventually
from e2e.lib.orders import Volume


@pytest.fixture
def volume(cluster, cistern):
    made = Volume(cluster, "node-a").bind().await_condition("Provisioned")
    yield made
    made.remove()


def test_a_pod_without_root_writes_by_its_fsgroup_and_the_quota_holds(cluster, volume):
    name = volume.run("id -g; echo mine >/data/file; stat -c '%u %g %a' /data/file; stat -c '%g %a' /data; "
                      "dd if=/dev/zero of=/data/large bs=1M count=400 2>&1 | grep -o 'No space left'; sleep 3600",
                      securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000})
    cluster.await_pod(name)
    eventually(lambda: "No space" in cluster.kubectl("logs", name), "the quota stops it")
    lines = cluster.kubectl("logs", name).splitlines()
    assert lines == ["1000", "1000 2000 644", "2000 2775", "No space left"]


def test_read_only_and_subpath_mounts_show_the_same_files(cluster, volume):
    writer = volume.run("mkdir /data/sub && echo one >/data/sub/file && sync && sleep 3600")
    cluster.await_pod(writer)
    reader = volume.run("cat /data/file; touch /data/file 2>&1 | grep -o 'Read-only'; sleep 3600", name=f"{volume.name}-reader",
                        mount={"subPath": "sub", "readOnly": True})
    cluster.await_pod(reader)
    eventually(lambda: cluster.kubectl("logs", reader).splitlines() == ["one", "Read-only"], "it reads, and cannot write")
    cluster.kubectl("delete", "pod", reader, "--timeout=60s")


def test_after_a_reboot_of_the_node_the_data_are_there(cluster, volume):
    name = volume.run("cat /data/kept 2>/dev/null; echo here >/data/kept; sync; sleep 3600", restartPolicy="Always")
    cluster.await_pod(name)
    eventually(lambda: cluster.exec(name, "cat", "/data/kept") == "here\n", "it is written")
    before = cluster.pod(name)["status"]["containerStatuses"][0]["containerID"]
    cluster.nodes["node-a"].reboot()
    eventually(lambda: cluster.pod(name)["status"]["containerStatuses"][0].get("containerID") != before and
               cluster.kubectl("logs", name) == "here\n", "the pod is back, with its data", 90)
