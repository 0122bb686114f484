# SPDX-License-Identifier: Apache-2.0
"""A short soak (tests/crash/soak runs it for as long as one likes)."""
import os
import subprocess
import sys

from paths import BUILD, TOP

SECONDS = os.environ.get("CISTERN_SOAK_SECONDS", "6")


def test_memory_descriptors_and_threads_stay_flat_under_random_faults():
    run = subprocess.run([sys.executable, TOP / "tests/crash/soak", "--seconds", SECONDS, "--build", BUILD], capture_output=True,
                         text=True, timeout=float(SECONDS) + 240, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
