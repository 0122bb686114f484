# SPDX-License-Identifier: Apache-2.0
"""What the tests of exports share."""
import pytest

from servers.bucket import BucketServer


@pytest.fixture
def bucket():
    with BucketServer() as running:
        yield running
