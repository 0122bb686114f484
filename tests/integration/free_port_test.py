# SPDX-License-Identifier: Apache-2.0
"""Ports of servers that cannot choose one themselves."""

import subprocess
import sys

from paths import TOP

# The random numbers are the same in each process, so each would take the same ports.
TAKE_TWO = """
import random, sys
numbers = random.Random(1)
random.SystemRandom = lambda: numbers
from servers.process import free_port
print(free_port(), flush=True)
sys.stdin.readline()
numbers.seed(1)
print(free_port(), flush=True)
sys.stdin.readline()
"""


def test_a_port_is_given_to_one_process_and_once():
    takers = [subprocess.Popen([sys.executable, "-c", TAKE_TWO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               cwd=TOP / "tests") for _ in range(2)]
    ports = []
    for _ in range(2):
        for taker in takers:
            ports.append(int(taker.stdout.readline()))
            taker.stdin.write("\n")
            taker.stdin.flush()
    assert [taker.wait(30) for taker in takers] == [0, 0]
    assert len(set(ports)) == 4, ports
