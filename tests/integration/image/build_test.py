# SPDX-License-Identifier: Apache-2.0
"""deploy/image/build: with each engine, of which these tests have only stand-ins, and without an engine."""

import json
import os
import shlex
import subprocess

import pytest

from chart.lib import HELM
from integration.lib.image import WORK, cross_build
from paths import CACHE, TOP
from servers.registry import Registry

BUILD = TOP / "deploy/image/build"
ENGINES = ("docker", "podman", "buildah")


@pytest.fixture
def registry():
    with Registry() as running:
        yield running


@pytest.fixture
def cross():
    with cross_build():
        yield


@pytest.fixture
def engines(tmp_path):
    """A directory for programs that write down their arguments; `answer` adds one that has a daemon, or has none, or whose builds
    fail."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def answer(name, works=True, builds=True):
        (folder / name).write_text(f'#!/bin/sh\n[ "$1" != info ] || exit {0 if works else 1}\necho "{name} $*" >>{tmp_path}/calls\n'
                                   f'case "$*" in *build\\ --platform*) exit {0 if builds else 1} ;; esac\n')
        (folder / name).chmod(0o755)

    for name in ENGINES:
        answer(name, works=False)
    answer.calls = lambda: (tmp_path / "calls").read_text().splitlines()
    answer.path = folder
    return answer


def build(*words, path=None, **env):
    path = f"{path}:{os.environ['PATH']}" if path else f"{CACHE}/bin:{os.environ['PATH']}"
    return subprocess.run([BUILD, *words], capture_output=True, text=True, timeout=900, env={**os.environ, "PATH": path, **env})


def images(command):
    """The images of the chart that this command would install."""
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:4] == ["helm", "install", "cistern", "charts/cistern"]
    done = subprocess.run([HELM, "template", *words[2:], "--kube-version", "1.34.4"], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {line.split()[-1] for line in done.stdout.splitlines() if " image: " in line}


def test_docker_pushes_both_architectures_with_buildx(engines):
    engines("docker")
    done = build("--push", "registry.example:5000/team/cistern:20260101", path=engines.path)
    assert done.returncode == 0, done.stderr
    assert engines.calls() == ["docker buildx build --platform linux/amd64,linux/arm64 --file deploy/image/Dockerfile "
                               "--tag registry.example:5000/team/cistern:20260101 --push ."]
    assert "registry.example:5000/team/cistern:20260101" in images(done.stdout)


def test_docker_without_push_loads_this_machines_architecture(engines):
    engines("docker")
    done = build("--arch", "amd64", path=engines.path)
    assert done.returncode == 0, done.stderr
    assert engines.calls()[0].endswith("--platform linux/amd64 --file deploy/image/Dockerfile --tag localhost/cistern:0.1.0 --load .")


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_an_engine_is_used_if_none_before_it_answers(engines, name):
    engines(name)
    done = build("--push", "registry.example/cistern", path=engines.path)
    assert done.returncode == 0, done.stderr
    assert engines.calls() == [
        f"{name} manifest rm registry.example/cistern:0.1.0",  # a build would append to the list of an earlier one
        f"{name} build --platform linux/amd64,linux/arm64 --file deploy/image/Dockerfile --manifest registry.example/cistern:0.1.0 .",
        f"{name} manifest push --all registry.example/cistern:0.1.0 docker://registry.example/cistern:0.1.0"]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_an_engine_that_cannot_build_for_another_architecture_is_answered_with_the_next_step(engines, name):
    engines(name, builds=False)
    done = build("--push", "registry.example/cistern", path=engines.path)
    assert done.returncode == 1 and done.stdout == "", done.stdout
    assert f"{name} failed for amd64 arm64" in done.stderr and "buildx create --use" in done.stderr and "--arch amd64" in done.stderr
    assert not [call for call in engines.calls() if "push" in call.split()], "nothing is pushed"
    alone = build("--arch", "amd64", path=engines.path)
    assert alone.returncode == 1 and alone.stdout == alone.stderr == "", "the engine has said what is wrong"


@pytest.mark.parametrize("words", [["--arch", "riscv64"], ["--arch"], ["--wrong"], ["one", "two"]])
def test_wrong_arguments_are_refused_before_anything_is_made(engines, words):
    engines("docker")
    done = build(*words, path=engines.path)
    assert done.returncode == 2 and done.stdout == "" and done.stderr


def test_without_an_engine_the_image_is_cross_compiled_and_pushed(registry, cross):
    """arm64, whose packages the tests have; amd64 differs in nothing but the name."""
    done = build("--push", "--arch", "arm64", f"{registry.address}/cistern:test", CISTERN_ENGINE="none")
    assert done.returncode == 0, done.stderr
    index = registry.manifest("cistern:test")
    assert [one["platform"] for one in index["manifests"]] == [{"architecture": "arm64", "os": "linux"}]
    config = registry.config("cistern:test", "linux/arm64")["config"]
    assert config["User"] == "65532:65532" and config["Entrypoint"] == ["/usr/bin/cisternd"]
    layout = json.loads((WORK / "oci/index.json").read_text())
    assert layout["manifests"][0]["digest"] == registry.crane("digest", f"{registry.address}/cistern:test").strip()

    for program in ("cistern", "cisternd", "cistern-keeper"):
        ran = subprocess.run([CACHE / "bin/qemu-aarch64", "-L", WORK / "arm64.rootfs", WORK / "arm64.rootfs/usr/bin" / program,
                              "--version"], capture_output=True, text=True)
        assert ran.returncode == 0 and "0.1.0" in ran.stdout, ran.stderr
    again = build("--arch", "arm64", f"{registry.address}/cistern:test", CISTERN_ENGINE="none")
    assert again.returncode == 0, again.stderr
    assert json.loads((WORK / "oci/index.json").read_text()) == layout, "the same files have another digest"
