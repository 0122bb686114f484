# SPDX-License-Identifier: Apache-2.0
"""A short soak (tests/crash/soak runs it for as long as one likes)."""
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("CISTERN_BUILD", TOP / "build")


def test_memory_descriptors_and_threads_stay_flat_under_random_faults():
    run = subprocess.run([TOP / "tests/crash/soak", "--seconds", "10", "--build", BUILD], capture_output=True, text=True,
                         timeout=280, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
