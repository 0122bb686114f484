# SPDX-License-Identifier: Apache-2.0
"""The scripts that a person runs: --help explains, and does nothing else."""

import subprocess

import pytest

from paths import TOP

SCRIPTS = ["deploy/build-deps.sh", "deploy/image/build", "deploy/kubernetes/generate", "deploy/manual/generate", "deploy/release/notes",
           "docs/reference/generate", "tests/bench/cluster", "tests/bench/kubernetes", "tests/bench/mount", "tests/bench/peers",
           "tests/bench/run", "tests/fuzz/run", "tests/lint/run", "tests/package/run", "tests/run", "tests/vm/run"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_of_a_script_explains_it_and_does_nothing(script):
    """Without a network, and on a system that cannot be written to."""
    sealed = 'mount -o remount,bind,ro / && exec "$0" --help'
    done = subprocess.run(["unshare", "--net", "--mount", "sh", "-c", sealed, TOP / script], cwd="/", capture_output=True, text=True,
                          timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode in (0, 2) and len(said) > 60 and "rror" not in done.stderr and "Read-only" not in said, said
