# SPDX-License-Identifier: Apache-2.0
"""The container image: what is in it, and that it runs. deploy/image/rootfs makes it, here and in the Dockerfile."""

import re
import subprocess

import pytest

from e2e.lib.ours import IMAGE, final_stage, make_rootfs, suite
from paths import TOP

PROGRAMS = {"cistern", "cisternd", "cistern-keeper", "cistern-mount"}
TOOLS = {"mkfs.xfs", "wipefs", "mdadm"}


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory):
    return make_rootfs(tmp_path_factory.mktemp("image") / "rootfs")


def test_the_image_holds_our_programs_what_they_start_and_no_shell(rootfs):
    executables = {p.name for p in rootfs.glob("usr/*bin/*")}
    assert executables == PROGRAMS | TOOLS
    others = [p for p in rootfs.rglob("*") if p.is_file() and not p.is_symlink() and p.stat().st_mode & 0o111 and
              p.name not in executables and ".so" not in p.name]
    assert others == []
    assert [p for p in rootfs.rglob("*") if p.is_file() and p.lstat().st_mode & 0o6000] == []


@pytest.mark.parametrize("program", sorted(PROGRAMS - {"cistern-mount"} | TOOLS))
def test_a_program_finds_all_its_libraries_in_the_image(rootfs, program):
    path = next(p for p in rootfs.glob(f"usr/*bin/{program}"))
    done = subprocess.run(["chroot", rootfs, f"/{path.relative_to(rootfs)}", "-V" if program == "mkfs.xfs" else "--version"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_library_names_its_package_and_licence(rootfs):
    packages = {p.name for p in (rootfs / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "libssl3" if suite() == "bookworm" else "libssl3t64", "xfsprogs", "mdadm", "ca-certificates"} <= packages
    assert (rootfs / "usr/share/doc/libc6/copyright").read_text() and (rootfs / "usr/share/doc/cistern/LICENSE").exists()


def test_a_system_of_another_suite_is_refused(tmp_path):
    done = subprocess.run([TOP / "deploy/image/rootfs", "sid", TOP / "build/bin", tmp_path / "none"], capture_output=True,
                          text=True)
    assert done.returncode == 1 and "not 'sid'" in done.stderr
    assert not (tmp_path / "none").exists()


def test_the_dockerfile_makes_the_same_files_on_a_pinned_suite():
    text = (TOP / "deploy/image/Dockerfile").read_text()
    build, _ = re.split(r"^FROM ", text, flags=re.M)[1:]
    assert build.startswith("debian:trixie AS build\n") and "/src/deploy/image/rootfs trixie /build/bin /rootfs" in build
    # The image of these tests has what the script makes as its only layer, and user and entry point from here.
    assert final_stage() == [["FROM", "scratch"], ["COPY", "--from=build /rootfs /"], ["USER", "65532:65532"],
                             ["ENTRYPOINT", '["/usr/bin/cisternd"]']]


def test_the_image_holds_no_build_tool_no_source_and_no_secret(rootfs):
    files = [p for p in rootfs.rglob("*") if p.is_file() and not p.is_symlink()]
    assert [p for p in files if p.suffix in (".a", ".h", ".c", ".o", ".pc", ".py", ".deb", ".gcda", ".log") or ".git" in p.parts] == []
    assert not [p for p in rootfs.glob("*") if p.name in ("root", "home", "src", "build")]
    texts = [p for p in files if not p.read_bytes().startswith(b"\x7fELF")]
    assert [p for p in texts if b"PRIVATE KEY" in p.read_bytes() or b"aws_secret_access_key" in p.read_bytes()] == []
    assert (rootfs / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 50


@pytest.mark.parametrize("node", ["node-a", "node-b"])
def test_a_pod_runs_the_image_without_root(cluster, images, node):
    name = f"version-on-{node}"
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                   "spec": {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                                            "command": ["cistern", "--version"],
                                            "securityContext": {"allowPrivilegeEscalation": False,
                                                                "readOnlyRootFilesystem": True,
                                                                "capabilities": {"drop": ["ALL"]}}}]}})
    cluster.await_pod(name, "Succeeded")
    assert cluster.kubectl("logs", name).startswith("cistern ")
    cluster.kubectl("delete", "pod", name, "--wait=false")
