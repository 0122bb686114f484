# SPDX-License-Identifier: Apache-2.0
import pytest

from servers.sts import Sts

from .world import Broker, World


@pytest.fixture(scope="session")
def world():
    running = World()
    yield running
    running.stop()


@pytest.fixture
def sts(world):
    server = Sts()
    server.trust(*world.published)
    yield server
    server.stop()


@pytest.fixture
def start(world, sts):
    """Starts brokers that end with the test; their output must have no token and no secret."""
    running = []

    def begin(**options):
        running.append(Broker(world, sts, **options))
        return running[-1]
    yield begin
    for broker in running:
        broker.stop()
        assert_prints_no_secret(broker.output(), sts)


@pytest.fixture
def broker(start):
    return start()


def assert_prints_no_secret(output, sts):
    from .world import JWT
    assert not JWT.search(output), output
    secrets = ["fetched-secret", "s3-secret", "PRIVATE KEY", *(f"token-{i}" for i in range(1, sts.given + 1))]
    assert not any(secret in output for secret in secrets), output
