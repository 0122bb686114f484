# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by the export tests."""
import pytest

from servers.bucket import BucketServer


@pytest.fixture
def bucket():
    with BucketServer() as running:
        yield running
