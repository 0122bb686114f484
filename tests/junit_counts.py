# SPDX-License-Identifier: Apache-2.0
"""Prints "passed failed skipped" of a JUnit file."""
import sys
import xml.etree.ElementTree as ET

tests = failed = skipped = 0
for suite in ET.parse(sys.argv[1]).getroot().iter("testsuite"):
    tests += int(suite.get("tests"))
    failed += int(suite.get("failures")) + int(suite.get("errors"))
    skipped += int(suite.get("skipped"))
print(max(tests - failed - skipped, 0), failed, skipped)
