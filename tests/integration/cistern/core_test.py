# SPDX-License-Identifier: Apache-2.0
"""Processes with credentials protect their memory: from core dumps, and from other processes of the same user."""
import os
import resource
import signal
import socket
import subprocess

import pytest

from integration.csi.driver import Driver
from paths import BUILD

SECRET = "a-secret-that-nobody-writes-down"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
# Two processes of one user with the rights of a Job: only among such may one look into the other at all.
CONFINED = ["setpriv", "--bounding-set=-sys_ptrace,-sys_admin,-perfmon"]


def with_cores():
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


@pytest.fixture
def store():
    """Takes requests and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        yield listener


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_bytes(b"content")
    (tmp_path / "work").mkdir()
    return tmp_path


def start(folder, *command):
    return subprocess.Popen([*CONFINED, *map(str, command)], cwd=folder / "work", env=os.environ | KEYS,
                            preexec_fn=with_cores, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def crash(process, how):
    """Does the kernel say that it wrote a core?"""
    process.send_signal(how)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = -how
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == how
    return os.WCOREDUMP(status)


def look_into(process, what):
    return subprocess.run([*CONFINED, "cat", f"/proc/{process.pid}/{what}"], capture_output=True, timeout=20, check=False)


def assert_that_nothing_is_seen_of(process, folder, how):
    for what in ("mem", "environ"):
        look = look_into(process, what)
        assert look.returncode != 0 and b"Permission denied" in look.stderr and not look.stdout, what
    assert not crash(process, how)
    for path in (p for p in folder.rglob("*") if p.is_file()):
        assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGABRT], ids=["SIGSEGV", "SIGABRT"])
@pytest.mark.parametrize("verb, source, target", [
    ("hydrate", "s3://bucket/data/", "out"), ("export", "../data", "s3://bucket/out/"), ("ls", "s3://bucket/", None)])
def test_a_verb_that_crashes_with_a_credential_leaves_nothing_of_it(store, folder, verb, source, target, how):
    endpoint = f"http://127.0.0.1:{store.getsockname()[1]}"
    process = start(folder, BUILD / "bin/cistern", verb, "--path-style", f"--endpoint={endpoint}", source,
                    *([target] if target else []))
    with store.accept()[0] as connection:
        assert b"Credential=AKIDEXAMPLE" in connection.recv(65536)  # it has signed with the secret
        assert_that_nothing_is_seen_of(process, folder, how)


def test_driver_crash_leaves_no_core_dump_with_its_environment(folder):
    driver = Driver(folder)
    try:
        driver.process = start(folder, BUILD / "bin/cisternd", f"--pool={driver.pools['default']}",
                               f"--endpoint=unix://{driver.socket}", f"--state={driver.state}")
        driver.wait_until_it_answers()
        assert_that_nothing_is_seen_of(driver.process, folder, signal.SIGSEGV)
    finally:
        driver.clean_up()
