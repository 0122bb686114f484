# SPDX-License-Identifier: Apache-2.0
"""A cluster in which nothing happens."""
import time

from integration.lib.claims import running_world

# Longer than a watch may be silent. The API server sends bookmarks each minute, but none of Events, and none of a kind that
# never changed.
SILENCE_SECONDS = 90


def test_a_controller_warns_of_no_watch_while_nothing_happens():
    with running_world() as world:
        world.stop_player()
        began = len(world.log())
        time.sleep(SILENCE_SECONDS)
        logged = world.log()[began:].splitlines()
    warnings = [line for line in logged if " level=debug " not in line and " level=info " not in line]
    # The API server makes its storage of a kind again some time after the definition came. That is expected.
    assert [line for line in warnings if "watch" in line and "storage is (re)initializing" not in line] == []
