# SPDX-License-Identifier: Apache-2.0
"""tests/run itself, with programs in place of cmake, ctest and pytest that fail at their first run only. Also the order of
the files of tests, and tests/package/run for two suites at once."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from paths import TOP

CTEST = """#!/bin/sh
for word; do [ "$word" != --rerun-failed ] || exit 0; done
while [ "$1" != --output-log ]; do shift; done
echo '[  PASSED  ] 5 test(s).' >"$2"
"""
PYTEST = """#!/bin/sh
# python -m pytest --junit-xml=FILE ...: tests 1 to $FLAKY fail at first; another script is run as it is.
[ "$1" = -m ] || exec {python} "$@"
echo "$$ $*" >>{folder}/calls
file=${{3#--junit-xml=}}
case $* in *--last-failed*) failures=0 inner= ;; *) failures=$FLAKY inner='<failure/>' ;; esac
{{
    echo "<testsuites><testsuite tests='$FLAKY' failures='$failures' errors='0' skipped='0'>"
    for n in $(seq "$FLAKY"); do echo "<testcase classname='x_test' name='test_$n'>$inner</testcase>"; done
    echo '</testsuite></testsuites>'
}} >"$file"
[ -z "$inner" ] || [ "$FLAKY" = 0 ]
"""

APT = """#!/bin/sh
# As apt, it fails while another one runs. It takes a while, so that the other suite finds it running.
exec 8>{folder}/lock
flock -n 8 || {{ echo 'E: Could not get lock'; exit 100; }} >&2
echo "$2" >>{folder}/calls
sleep 0.5
[ "$2" != install ] || ln -s debootstrap.installed {folder}/bin/debootstrap
"""
DEBOOTSTRAP = """#!/bin/sh
echo "$2" >>{folder}/calls
exit 1
"""


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run_stages(tmp_path, flaky, *stages, inside=()):
    (tmp_path / "tests").mkdir(exist_ok=True)
    for name in ("run", "junit_counts.py"):
        shutil.copy(TOP / "tests" / name, tmp_path / "tests" / name)
    (tmp_path / "cache/python/bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir(exist_ok=True)
    programs = {"bin/cmake": "#!/bin/sh\n", "bin/ctest": CTEST,
                "cache/python/bin/python": PYTEST.format(python=sys.executable, folder=tmp_path)}
    for path, text in programs.items():
        write_program(tmp_path / path, text)
    return subprocess.run([*inside, tmp_path / "tests/run", *stages], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CISTERN_CACHE": f"{tmp_path}/cache",
                               "FLAKY": str(flaky)})


@pytest.mark.parametrize("flaky", [1, 3])
def test_up_to_three_tests_that_pass_when_run_again_are_named(tmp_path, flaky):
    done = run_stages(tmp_path, flaky, "disks", "integration")
    assert done.returncode == 0, done.stdout + done.stderr
    named = [line for line in done.stdout.splitlines() if line.startswith("PASSED ONLY WHEN RUN AGAIN ")]
    assert len(set(named)) == flaky
    assert f"x_test::test_{flaky}" in done.stdout
    assert done.stdout.splitlines()[-1] == f"{5 + flaky} passed, 0 failed"


def test_four_tests_that_pass_when_run_again_fail_the_run(tmp_path):
    done = run_stages(tmp_path, 4, "disks", "integration")
    assert done.returncode == 1
    assert "FAILED 4 tests passed only when run again, 3 at most" in done.stdout
    assert done.stdout.splitlines()[-1] == "9 passed, 1 failed"


def test_stages_that_run_beside_each_other_do_not_share_what_failed_last(tmp_path):
    done = run_stages(tmp_path, 1, "asan-integration", "integration")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "2 passed, 0 failed", done.stdout
    places = re.findall(r"cache_dir=(\S+)", (tmp_path / "calls").read_text())
    assert len(places) == 4 and len(set(places)) == 2, places  # each runs its failures again


def test_a_stage_that_runs_beside_others_and_is_killed_fails_the_run(tmp_path):
    write_program(tmp_path / "tests/lint/run", "#!/bin/sh\nkill -9 $PPID\n")
    done = run_stages(tmp_path, 0, "lint", "disks")
    assert done.returncode == 1 and "FAILED lint: ended early" in done.stdout, done.stdout
    assert done.stdout.splitlines()[-1] == "5 passed, 1 failed"


def test_a_process_id_that_is_used_again_fails_no_stage(tmp_path):
    """The shell then cannot say how the child ended that had the ID before. Here pytest gets the ID of the stage beside it."""
    write_program(tmp_path / "tests/lint/run", f"#!/bin/sh\necho $PPID >{tmp_path}/lane\necho 'lint: 7 passed, 0 failed'\n")
    write_program(tmp_path / "bin/rm", f"""#!/bin/sh
        /bin/rm "$@"
        until [ -s {tmp_path}/lane ]; do sleep 0.01; done
        read lane <{tmp_path}/lane
        while [ -e /proc/$lane ]; do sleep 0.01; done
        echo $((lane - 1)) >/proc/sys/kernel/ns_last_pid
    """)
    done = run_stages(tmp_path, 1, "lint", "integration", inside=("unshare", "--pid", "--fork", "--mount-proc"))
    assert (tmp_path / "calls").read_text().split()[0] == (tmp_path / "lane").read_text().strip()
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "8 passed, 0 failed", done.stdout + done.stderr


def test_the_file_that_took_longest_in_the_last_run_is_first(tmp_path):
    for name in ("conftest.py", "paths.py"):
        shutil.copy(TOP / "tests" / name, tmp_path / name)
    (tmp_path / "a_test.py").write_text("def test_a1(): pass\ndef test_a2(): pass\ndef test_a3(): pass\n")
    (tmp_path / "b_test.py").write_text("import time\ndef test_b(): time.sleep(0.3)\n")

    def order():
        done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-o", "python_files=*_test.py", "-n", "1", "--dist",
                               "loadfile", "--no-loadscope-reorder", tmp_path], capture_output=True, text=True, cwd=tmp_path,
                              check=True, env={**os.environ, "CISTERN_CACHE": str(tmp_path), "PYTHONPATH": str(tmp_path)})
        return re.findall(r"PASSED \w+\.py::(\w+)", done.stdout)

    assert order() == ["test_a1", "test_a2", "test_a3", "test_b"], "unknown: the file with most tests first"
    assert order() == ["test_b", "test_a1", "test_a2", "test_a3"]


def test_packages_of_two_suites_at_once_install_debootstrap_once(tmp_path):
    (tmp_path / "bin").mkdir()
    for folder in ("/usr/sbin", "/usr/bin"):  # without the machine's debootstrap
        for program in os.listdir(folder):
            if program not in ("apt-get", "debootstrap") and not (tmp_path / "bin" / program).is_symlink():
                (tmp_path / "bin" / program).symlink_to(f"{folder}/{program}")
    for name, text in (("apt-get", APT), ("debootstrap.installed", DEBOOTSTRAP)):
        write_program(tmp_path / "bin" / name, text.format(folder=tmp_path))
    environment = {**os.environ, "PATH": f"{tmp_path}/bin", "CISTERN_CACHE": f"{tmp_path}/cache"}
    both = [subprocess.Popen([TOP / "tests/package/run", suite], stderr=subprocess.PIPE, text=True, env=environment)
            for suite in ("bookworm", "trixie")]
    told = [run.communicate(timeout=60)[1] for run in both]
    calls = (tmp_path / "calls").read_text().split()
    assert calls[:2] == ["update", "install"] and sorted(calls[2:]) == ["bookworm", "trixie"], (calls, told)
