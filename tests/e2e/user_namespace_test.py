# SPDX-License-Identifier: Apache-2.0
"""Pods with `hostUsers: false`: the node has other ids for their users, and the volume's disk has the ids of the pods."""

import pytest

from e2e.lib.machine import eventually

SHOW = "cd /data && stat -c '%n %u %g %a' *"


@pytest.fixture(params=["fuse", "bind"])
def access(cluster, request):
    """A class whose volumes are mounted in this way; its name is the kind."""
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": request.param},
                   "provisioner": "csi.cistern.io", "volumeBindingMode": "WaitForFirstConsumer",
                   "parameters": {"access": request.param}})
    yield request.param
    cluster.kubectl("delete", "storageclass", request.param)


def claim(team, access):
    made = team.claim("set", "set", size="64Mi")
    made["spec"] |= {"storageClassName": access, "accessModes": ["ReadWriteOnce"]}
    return made


def pod(team, name, script, host_users=False, **security):
    made = team.pod(name, "set", f"exec 2>&1; cat /proc/self/uid_map; {script}; sleep 3600")
    made["spec"] |= {"hostUsers": host_users, "securityContext": security}
    return made


def said(team, name, lines):
    """The first user of the node that the pod has, and the lines that the pod wrote."""
    team.await_pod(name)
    first, *rest = eventually(lambda: found if len(found := team.logs(name).splitlines()) > lines else None,
                              f"{name} wrote {lines} lines", 30)
    return int(first.split()[1]), rest


def on_disk(cluster, team):
    """Names, users, groups and modes of the volume's files as the node sees them."""
    volume = team.volume("set")
    top = f"/mnt/disks/cistern/volumes/{volume['spec']['volumeID']}/data"
    return cluster.nodes[volume["spec"]["nodeName"]].run("sh", "-c", SHOW.replace("/data", top)).splitlines()


@pytest.fixture
def source(store, team):
    team.apply(team.source("set", f"s3://{store.bucket({'data/part': b'from the bucket'})}/data/"))


def test_pods_in_user_namespaces_and_others_see_the_owners_that_are_on_disk(cluster, team, source, access):
    team.apply(claim(team, access),
               pod(team, "root", f"cd /data; echo x >made; echo x >given; chown 1000:2000 given; chmod 640 given; {SHOW}"))
    began, lines = said(team, "root", 3)
    assert began > 65535, "the pod is in a user namespace"
    assert lines == on_disk(cluster, team) == ["given 1000 2000 640", "made 0 0 644", "part 0 0 644"]
    assert team.volume("set")["status"]["access"] == {"fuse": "passthrough", "bind": "bind"}[access]
    team.exec("root", "chmod", "777", "/data")

    # Another namespace has other ids on the node.
    script = f"cd /data; echo y >>given; cat given; echo z >>made; echo z >mine; {SHOW}"
    team.apply(pod(team, "user", script, runAsUser=1000, runAsGroup=2000))
    other, lines = said(team, "user", 7)
    assert other not in (0, began)
    owners = ["given 1000 2000 640", "made 0 0 644", "mine 1000 2000 644", "part 0 0 644"]
    assert lines == ["x", "y", "sh: can't create made: Permission denied", *owners]
    team.apply(pod(team, "outside", SHOW, host_users=True))
    assert said(team, "outside", 4) == (0, owners)
    assert on_disk(cluster, team) == owners


@pytest.mark.parametrize("access", ["fuse"], indirect=True)
def test_a_pod_in_a_user_namespace_writes_by_its_fsgroup(cluster, team, source, access):
    script = f"cat /data/part; echo; cd /data; echo y >mine; echo more >>part; {SHOW}; stat -c '%g %a' ."
    team.apply(claim(team, access), pod(team, "user", script, runAsUser=1000, runAsGroup=1000, fsGroup=2000))
    began, lines = said(team, "user", 4)
    assert began > 65535
    assert lines == ["from the bucket", "mine 1000 2000 644", "part 0 2000 664", "2000 2775"]
    assert on_disk(cluster, team) == ["mine 1000 2000 644", "part 0 0 644"], "a view writes no group"
