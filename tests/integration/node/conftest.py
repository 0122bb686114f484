# SPDX-License-Identifier: Apache-2.0
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from agent import Kubelet, Node  # noqa: E402


@pytest.fixture
def folder():
    """Short, since a socket's path may have a hundred bytes; on a real disk, since pools are."""
    with tempfile.TemporaryDirectory(prefix="cistern-node-", dir="/var/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture
def node(folder):
    n = Node(folder)
    yield n.start()
    code = n.stop()
    n.clean_up()
    assert code in (0, -9), n.log_text()[-5000:]  # the sanitizers' complaints are there


@pytest.fixture
def kubelet(folder):
    (folder / "plugins_registry").mkdir(exist_ok=True)
    k = Kubelet(folder / "plugins_registry")
    yield k
    k.stop()
