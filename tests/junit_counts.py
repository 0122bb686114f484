# SPDX-License-Identifier: Apache-2.0
"""Prints "passed failed skipped" of a JUnit file, then the name of each test that did not pass, a line each."""
import sys
import xml.etree.ElementTree as ET

tests = failed = skipped = 0
names = []
for suite in ET.parse(sys.argv[1]).getroot().iter("testsuite"):
    tests += int(suite.get("tests"))
    failed += int(suite.get("failures")) + int(suite.get("errors"))
    skipped += int(suite.get("skipped"))
    names += [f"{case.get('classname')}::{case.get('name')}" for case in suite.iter("testcase")
              if any(case.find(what) is not None for what in ("failure", "error", "skipped"))]
print(max(tests - failed - skipped, 0), failed, skipped)
print(*names, sep="\n")
