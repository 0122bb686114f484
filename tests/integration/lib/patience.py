# SPDX-License-Identifier: Apache-2.0
"""Waits that look again and again: a look may cost a request, or a walk through /proc."""

import time

SELDOM = 0.1


def pause(began, often=0.02):
    """Sleeps between two looks of a wait that began then: the longer it has taken, the less often it looks."""
    time.sleep(min(max(often, (time.monotonic() - began) / 20), SELDOM))
