# SPDX-License-Identifier: Apache-2.0
"""Runs the files of tests longest first, by the seconds that their tests took in the last run of this build. Several
processes share the files, and a long one that begins last would keep the run waiting."""

import json
import os

from paths import BUILD, CACHE

# The servers of the tests are Go programs with small heaps: less garbage collection saves a quarter of their processor time.
os.environ.setdefault("GOGC", "400")

KNOWN = CACHE / f"test-seconds-{BUILD.name}.json"
took, failed = {}, set()


def known_seconds():
    """Seconds by test, of earlier runs."""
    try:
        return json.loads(KNOWN.read_text())
    except (OSError, ValueError):  # the first run on this machine
        return {}


def pytest_collection_modifyitems(items):
    known, file_seconds = known_seconds(), {}
    for item in items:
        file_seconds[item.path] = file_seconds.get(item.path, 0) + known.get(item.nodeid, 1)
    items.sort(key=lambda item: -file_seconds[item.path])  # stable: the tests of a file keep their order


def pytest_runtest_logreport(report):
    took[report.nodeid] = took.get(report.nodeid, 0) + report.duration
    if report.failed:
        failed.add(report.nodeid)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput") or not took or not KNOWN.parent.is_dir():
        return
    new = KNOWN.with_suffix(f".{os.getpid()}")
    whole = {test: seconds for test, seconds in took.items() if test not in failed}  # a failed one may end too early
    new.write_text(json.dumps({**known_seconds(), **whole}, indent=0, sort_keys=True))
    new.rename(KNOWN)
