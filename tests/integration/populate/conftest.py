# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest

from integration.lib.claims import World

numbers = itertools.count()


@pytest.fixture(scope="module")
def world():
    w = World()
    try:
        w.start()
        yield w
    finally:
        w.stop()


@pytest.fixture
def ns(world):
    """A namespace with a source, on nodes that are as they were."""
    name = f"train-{next(numbers)}"
    world.make_namespace(name)
    world.make_source(name)
    for node in world.nodes:
        node.full = node.lost = node.silent = False
        node.hydrates, node.fault = True, None
    return name
