# SPDX-License-Identifier: Apache-2.0
"""The scripts of a release, with a registry on this machine in place of the forge's. cosign is a stand-in that records its
arguments: a real one asks a service on the internet for a certificate."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest
import yaml

from chart.lib import HELM
from integration.lib.image import cross_build
from paths import CACHE, TOP
from servers.registry import Registry

RELEASE = TOP / "deploy/release"
FILES = ("CMakeLists.txt", "CHANGELOG.md", "charts/cistern/Chart.yaml", "deploy/release")


def run(*words, check=True, **env):
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, env={**os.environ, **env})
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture
def tree(tmp_path):
    """A tree with the files that have the version."""
    for name in FILES:
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        copy(TOP / name, tmp_path / "tree" / name)
    changelog = tmp_path / "tree/CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## [Unreleased]", "## [Unreleased]\n\n## [0.1.0] - 2026-01-31"))
    return tmp_path / "tree"


def check(tree, *words):
    return run(tree / "deploy/release/check", *words, check=False)


def test_the_version_is_the_same_everywhere_in_this_tree():
    assert run(RELEASE / "check").stdout == "0.1.0\n"


def test_a_tag_of_the_version_with_its_section_may_be_released(tree):
    done = check(tree, "v0.1.0")
    assert (done.returncode, done.stdout) == (0, "0.1.0\n"), done.stderr
    notes = run(tree / "deploy/release/notes", "0.1.0").stdout
    assert notes.startswith("### Added\n") and "## [" not in notes
    assert run(tree / "deploy/release/notes", "Unreleased").stdout == ""


@pytest.mark.parametrize("file, old, new, words", [
    ("CMakeLists.txt", "VERSION 0.1.0", "VERSION 0.2.0", "Chart.yaml has version '0.1.0'"),
    ("charts/cistern/Chart.yaml", 'appVersion: "0.1.0"', 'appVersion: "0.0.9"', "appVersion"),
    ("CHANGELOG.md", "## [0.1.0]", "## [0.0.9]", "no section [0.1.0]")])
def test_a_tree_of_two_versions_is_not_released(tree, file, old, new, words):
    text = (tree / file).read_text()
    (tree / file).write_text(text.replace(old, new, 1))
    done = check(tree, "v0.1.0")
    assert done.returncode == 1 and words in done.stderr and done.stdout == ""


def test_a_tag_of_another_version_is_not_released(tree):
    done = check(tree, "v0.1.1")
    assert done.returncode == 1 and "the tag v0.1.1" in done.stderr


@pytest.fixture
def tools(tmp_path):
    """The environment of the scripts: the tests' crane and helm, and a cosign that writes down its arguments."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cosign").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/signed\n')
    (tmp_path / "bin/cosign").chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:{CACHE}/bin:{HELM.parent}:{os.environ['PATH']}", "HELM_CACHE_HOME": f"{tmp_path}/helm",
            "HELM_CONFIG_HOME": f"{tmp_path}/helm", "HELM_DATA_HOME": f"{tmp_path}/helm"}


def test_a_release_is_made_published_and_installable(tools, tmp_path):
    """Of arm64, whose packages the tests have."""
    out = tmp_path / "out"
    with Registry() as registry, cross_build():
        repository = f"{registry.address}/acme"
        run(RELEASE / "make", out, repository, CISTERN_ARCHS="arm64", **tools)
        assert {p.name for p in out.iterdir()} == {"cistern-0.1.0-image.tar", "cistern-0.1.0-arm64.spdx.json", "cistern-0.1.0.tgz",
                                                   "notes.md"}
        (out / "cistern_0.1.0_bookworm_amd64.deb").write_text("made by tests/package/run")
        run(RELEASE / "publish", out, repository, **tools)

        digests = {name: registry.crane("digest", f"{repository}/{name}:0.1.0").strip() for name in ("cistern", "charts/cistern")}
        assert (tmp_path / "signed").read_text().splitlines() == [
            *(f"sign --yes {repository}/{name}@{digest}" for name, digest in digests.items()),
            f"sign-blob --yes --bundle {out}/SHA256SUMS.sigstore.json {out}/SHA256SUMS"]
        sums = dict(reversed(line.split()) for line in (out / "SHA256SUMS").read_text().splitlines())
        assert sums == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in out.iterdir() if p.name != "SHA256SUMS"}

        pulled = run(HELM, "template", "cistern", f"oci://{repository}/charts/cistern", "--version", "0.1.0", "--plain-http",
                     "--kube-version", "1.34.4", **tools).stdout
        assert f"image: {repository}/cistern:0.1.0" in pulled and "ghcr.io" not in pulled
        assert registry.config("acme/cistern:0.1.0", "linux/arm64")["config"]["User"] == "65532:65532"
    again = run(RELEASE / "make", out, repository, check=False, **tools)
    assert again.returncode != 0 and "exists" in again.stderr, "files of another release would be published"
    assert_bill_is_complete(json.loads((out / "cistern-0.1.0-arm64.spdx.json").read_text()), out / "cistern-0.1.0-image.tar")


def assert_bill_is_complete(bill, image):
    """Every package whose licence the image has is in the bill, with a version, and nothing twice."""
    assert (bill["spdxVersion"], bill["dataLicense"], bill["SPDXID"]) == ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT")
    packages = {one["name"]: one for one in bill["packages"]}
    assert len(packages) == len(bill["packages"]) and all(one["versionInfo"] for one in packages.values())
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one["SPDXID"]) for one in packages.values())
    assert packages["libc6"]["externalRefs"][0]["referenceLocator"].startswith("pkg:deb/debian/libc6@")
    related = {one["relatedSpdxElement"] for one in bill["relationships"]}
    assert related == {one["SPDXID"] for one in packages.values()}
    with tarfile.open(image) as layout:
        blobs = max(layout.getmembers(), key=lambda member: member.size)  # the layer
        with tarfile.open(fileobj=layout.extractfile(blobs), mode="r:gz") as layer:
            licensed = {name.split("/")[-2] for name in layer.getnames() if name.endswith("/copyright")}
    assert {"libc6", "mdadm", "xfsprogs"} <= licensed <= set(packages)


def test_the_workflow_runs_these_scripts_in_order():
    workflow = yaml.safe_load((TOP / ".github/workflows/release.yml").read_text())
    steps = [step.get("run", "") for step in workflow["jobs"]["release"]["steps"]]
    ours = [re.search(r"(deploy|tests)/[\w/.-]+", step).group() for step in steps if re.search(r"\b(deploy|tests)/", step)]
    assert ours == ["deploy/build-deps.sh", "deploy/release/check", "deploy/release/make", "tests/package/run", "deploy/release/publish"]
    assert all(os.access(TOP / script, os.X_OK) for script in ours)
    assert workflow[True]["push"]["tags"] == ["v*"]  # YAML reads `on` as true
    crane = re.search(r"go-containerregistry (v\S+)", (TOP / "tests/deps/crane/go.mod").read_text()).group(1)
    for file in (".github/workflows/release.yml", "deploy/image/build"):
        assert f"cmd/crane@{crane}" in pathlib.Path(TOP / file).read_text(), f"{file}: another crane than the tests'"
