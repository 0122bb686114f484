# SPDX-License-Identifier: Apache-2.0
"""`cistern demo`, as a newcomer runs it."""

import os
import pathlib
import signal
import subprocess

import pytest

from paths import BUILD

WORK = pathlib.Path("/var/tmp")


def demo(*flags, **options):
    return subprocess.run([BUILD / "bin/cistern", "demo", *flags], capture_output=True, text=True, timeout=120, **options)


def leftovers():
    """Directories, mounts and processes of any demo."""
    mounts = [line for line in open("/proc/mounts") if "cistern-demo-" in line]
    running = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if b"/cistern-demo-" in (entry / "cmdline").read_bytes():
                running.append(entry.name)
        except (NotADirectoryError, FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return [str(p) for p in WORK.glob("cistern-demo-*")] + mounts + running


def test_a_volume_lives_its_whole_life_and_leaves_nothing_behind():
    run = demo("--objects", "300", "--size", "64Mi")
    assert run.returncode == 0, run.stdout + run.stderr
    steps = [line.split()[0] for line in run.stdout.splitlines() if line.startswith("  ")]
    assert steps == ["bucket", "driver", "create", "publish", "train", "compare", "unpublish", "delete", "exported"]
    assert "2 x kill -9 of the mount, 0 errors" in run.stdout
    assert "302 files" in run.stdout
    assert "s so far)" in run.stderr, "training is silent for 9 s"
    assert leftovers() == []


def test_demo_of_a_missing_source_fails_and_is_cleaned_up():
    run = demo("--source", "file:///no/such/folder/")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "/no/such/folder" in run.stderr and "CIS" in run.stderr
    assert leftovers() == []


def test_demo_whose_output_is_closed_is_cleaned_up():
    run = subprocess.run(f"{BUILD}/bin/cistern demo --objects 50 --size 8Mi | head -n 3", shell=True,
                         capture_output=True, text=True, timeout=120)
    assert run.stdout.count("\n") == 3
    for _ in range(600):
        if not leftovers():
            break
        subprocess.run(["sleep", "0.1"])
    assert leftovers() == []


def test_an_interrupt_at_the_terminal_ends_everything_in_order():
    run = subprocess.Popen([BUILD / "bin/cistern", "demo", "--objects", "50", "--size", "8Mi"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    told = ""
    while "  train" not in told:
        told += run.stdout.read(1)
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 1 and "interrupted" in errors
    assert leftovers() == []


@pytest.mark.parametrize("step", ["driver", "train"])
def test_a_killed_demo_is_cleaned_up(step):
    run = subprocess.Popen([BUILD / "bin/cistern", "demo", "--objects", "50", "--size", "8Mi"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    told = ""
    while f"  {step}" not in told:
        told += run.stdout.read(1)
    os.killpg(run.pid, signal.SIGKILL)
    said, _ = run.communicate(timeout=120)  # until every process that has the pipe has ended
    assert run.returncode == -signal.SIGKILL and "Demo passed" not in said and leftovers() == []


def test_without_root_it_says_what_it_needs():
    run = demo(preexec_fn=lambda: os.setuid(65534))
    assert run.returncode == 10
    assert "run it as root" in run.stderr and "CIS9010" in run.stderr


def test_words_it_does_not_know_are_refused():
    assert demo("--objets", "5").returncode == 2
    assert demo("now").returncode == 2
