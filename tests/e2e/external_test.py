# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own external storage tests, built from its source, against the installed chart: all that apply."""

import concurrent.futures
import json
import subprocess
import xml.etree.ElementTree

import pytest

from paths import TOP

from .lib import image
from .lib.machine import BIN, DEBIAN

DRIVER = TOP / "tests/e2e/external.yaml"
PROCESSES, PARTS = 8, 32  # all, one after the other, take 25 minutes
LEAST = 43  # so many apply
# They need a shell on the node, another operating system, a feature that is off by default, or another populator's image.
NOT_APPLICABLE = r"\[Disruptive\]|\[Feature:Windows\]|\[FeatureGate:|with any volume data source"
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


def run_one(cluster, program, driver, focus, seconds, name, *flags):
    """Runs the tests whose names match; returns {name: passed, failed or skipped}."""
    report = cluster.folder / f"external-{name}.xml"
    command = [program, "--kubeconfig", cluster.control.admin, "--provider", "skeleton", "--storage.testdriver", driver,
               "--ginkgo.focus", focus, "--ginkgo.skip", NOT_APPLICABLE, "--ginkgo.junit-report", report, "--ginkgo.no-color",
               "--ginkgo.timeout", f"{seconds}s", "--test.timeout", f"{seconds + 60}s", "--kubectl-path", BIN / "kubectl", *flags]
    log = TOP / f"build/logs/external-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, timeout=seconds + 120)
    cases = xml.etree.ElementTree.parse(report).iter("testcase")
    return {case.get("name"): case.get("status") for case in cases if "External Storage" in case.get("name")}


def names_of(cluster, program, driver):
    """All that apply, as --ginkgo.focus reads them. A report of JUnit has labels behind them."""
    listed = cluster.folder / "external-list.json"
    run_one(cluster, program, driver, "External.Storage", 60, "list", "--ginkgo.dry-run", "--ginkgo.json-report", listed)
    (suite,) = json.loads(listed.read_text())
    return [" ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])
            for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It" and spec["State"] == "passed"]


def run(cluster, program, driver, parts, seconds):
    """Runs each part in a process of its own, some side by side: they wait for pods most of the time."""
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        ends = [pool.submit(run_one, cluster, program, driver, part, seconds, number) for number, part in enumerate(parts)]
        return {name: status for one in ends for name, status in one.result().items() if status != "skipped"}


def literally(text):
    """The text as a regular expression of Go."""
    return "".join(f"\\{c}" if c in r"\.+*?()|[]{}^$" else c for c in text)


def check(found):
    failed = sorted(name for name, status in found.items() if status != "passed")
    assert not failed, "\n".join(failed)


@pytest.mark.timeout(1000)
def test_the_storage_tests_of_kubernetes_pass(cluster, program):
    names = names_of(cluster, program, DRIVER)
    parts = [f"({'|'.join(map(literally, names[first::PARTS]))})$" for first in range(PARTS)]
    found = run(cluster, program, DRIVER, parts, 900)
    check(found)
    assert len(found) >= LEAST


@pytest.mark.timeout(1000)
def test_a_changed_group_lasts_as_kubernetes_expects_where_it_can(cluster, program):
    driver = cluster.folder / "external.yaml"
    driver.write_text(DRIVER.read_text().replace("volumeMountGroup: true", "volumeMountGroup: false"))
    found = run(cluster, program, driver, map(literally, GROUPS), 900)
    check(found)
    for text, least in GROUPS.items():
        assert sum(text in name for name in found) >= least, f"'{text}': fewer than {least} passed"
