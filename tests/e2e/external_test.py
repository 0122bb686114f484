# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own external storage tests, built from its source, against the installed chart.

Each run takes a part of them that shows every kind of access; CISTERN_EXTERNAL=all takes all that apply (25 minutes):

  CISTERN_EXTERNAL=all tests/run pytest tests/e2e/external_test.py
"""

import os
import subprocess
import xml.etree.ElementTree

import pytest

from paths import TOP

from .lib import image
from .lib.machine import BIN, DEBIAN

DRIVER = TOP / "tests/e2e/external.yaml"
# They need a shell on the node, another operating system, a feature that is off by default, or another populator's image.
NOT_APPLICABLE = r"\[Disruptive\]|\[Feature:Windows\]|\[FeatureGate:|with any volume data source"
# Each run takes these: a part of a name, and how many tests with it must pass.
PART = {
    "(Always)[LinuxOnly], pod created with an initial fsgroup, new pod fsgroup applied": 1,
    "should access to two volumes with the same volume mode and retain data across pod recreation on the same node": 1,
    "should support existing single file [LinuxOnly]": 1,
    "should resize volume when PVC is edited while pod is using it": 1,
    "should preempt lower priority pods using ReadWriteOncePod volumes": 1,
    "should provision a volume and schedule a pod with AllowedTopologies": 1,
}
# Kubernetes skips these for drivers that apply a pod's group, which cannot see the pod's fsGroupChangePolicy. A group
# that was changed lasts as long as the volume's group, as OnRootMismatch wants; so does Always with another group.
# (Always with the same group would take it back at the next pod: the one test of the four that cannot pass.)
GROUPS = {
    "(OnRootMismatch)[LinuxOnly], pod created with an initial fsgroup, volume contents ownership changed via chgrp": 2,
    "(Always)[LinuxOnly], pod created with an initial fsgroup, volume contents ownership changed via chgrp in first pod, "
    "new pod with different fsgroup": 1,
}


def images_of(program, short):
    """The names that the tests give this image: one for each version that any of them wants."""
    listed = subprocess.run([program, "--list-images"], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if f"/{short}:" in name]


@pytest.fixture(scope="module")
def program(cluster, cistern):
    built, archive = BIN / "storage.test", cluster.folder / "external.tar"
    for name in [name for short in ("busybox", "jessie-dnsutils", "nginx") for name in images_of(built, short)]:
        image.busybox(archive, DEBIAN / "bin/busybox", name)
        cluster.import_image(archive)
    for name in images_of(built, "agnhost"):
        image.busybox(archive, DEBIAN / "bin/busybox", name, files={"agnhost": (BIN / "agnhost").read_bytes()},
                      entrypoint=["/agnhost"], command=["pause"])
        cluster.import_image(archive)
    return built


def run(cluster, program, driver, focus, seconds):
    """Runs the tests whose names match; returns {name: passed, failed or skipped} of those that were not left out."""
    report = cluster.folder / "external.xml"
    command = [program, "--kubeconfig", cluster.control.admin, "--provider", "skeleton", "--storage.testdriver", driver,
               "--ginkgo.focus", focus, "--ginkgo.skip", NOT_APPLICABLE, "--ginkgo.junit-report", report, "--ginkgo.no-color",
               "--ginkgo.timeout", f"{seconds}s", "--test.timeout", f"{seconds + 60}s", "--kubectl-path", BIN / "kubectl"]
    log = TOP / "build/logs/external.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as out:
        subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, timeout=seconds + 120)
    cases = xml.etree.ElementTree.parse(report).iter("testcase")
    return {case.get("name"): case.get("status") for case in cases if "External Storage" in case.get("name")}


def literally(text):
    """The text as a regular expression of Go."""
    return "".join(f"\\{c}" if c in r"\.+*?()|[]{}^$" else c for c in text)


def check(found, wanted):
    failed = sorted(name for name, status in found.items() if status not in ("passed", "skipped"))
    assert not failed, "\n".join(failed)
    passed = [name for name, status in found.items() if status == "passed"]
    for text, least in wanted.items():
        assert sum(text in name for name in passed) >= least, f"'{text}': fewer than {least} passed"
    return len(passed)


@pytest.mark.timeout(4000)
def test_the_storage_tests_of_kubernetes_pass(cluster, program):
    if os.environ.get("CISTERN_EXTERNAL") == "all":
        assert check(run(cluster, program, DRIVER, "External.Storage", 3600), PART) >= 43  # all that are not skipped
    else:
        check(run(cluster, program, DRIVER, "|".join(map(literally, PART)), 900), PART)


@pytest.mark.timeout(1000)
def test_a_changed_group_lasts_as_kubernetes_expects_where_it_can(cluster, program):
    driver = cluster.folder / "external.yaml"
    driver.write_text(DRIVER.read_text().replace("volumeMountGroup: true", "volumeMountGroup: false"))
    check(run(cluster, program, driver, "|".join(map(literally, GROUPS)), 900), GROUPS)
