# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest

from integration.lib.claims import running_world

numbers = itertools.count()


@pytest.fixture(scope="module")
def world():
    with running_world() as w:
        yield w


@pytest.fixture
def ns(world):
    """A namespace with a source, on scripted nodes. At its end no object of the namespace is left."""
    name = f"train-{next(numbers)}"
    world.make_namespace(name)
    world.make_source(name)
    yield name
    world.every_node(full=False, lost=False, silent=False, hydrates=True, fault=None)
    world.empty(name)
