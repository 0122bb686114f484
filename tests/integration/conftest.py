# SPDX-License-Identifier: Apache-2.0
"""Fixtures that all integration tests share. `bucket` is an empty bucket, and runs its test once for each kind of store:
a directory, two S3 servers that disagree, and a GCS server. The servers live as long as the session."""


import pytest

from integration.lib import buckets
from servers.minio import EXAMPLE_BUCKET, Minio

KINDS = ["file", "s3-versitygw", "s3-minio", "gs-fake"]


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Starts a server when a test first asks for its kind."""
    running = buckets.Stores(tmp_path_factory)
    yield running
    running.stop()


@pytest.fixture(params=KINDS)
def bucket(request, stores):
    return stores.new_bucket(request.param)


@pytest.fixture(params=[k for k in KINDS if k.startswith("s3")])
def s3_bucket(request, stores):
    return stores.new_bucket(request.param)


@pytest.fixture
def file_bucket(stores):
    return stores.new_bucket("file")


@pytest.fixture
def gs_bucket(stores):
    return stores.new_bucket("gs-fake")


@pytest.fixture(scope="module")
def minio_server():
    """A store that enforces policies, with an empty EXAMPLE_BUCKET that belongs to the tests of one file."""
    with Minio() as server:
        server.make_bucket(EXAMPLE_BUCKET)
        yield server
