# SPDX-License-Identifier: Apache-2.0
"""A local copy of a kind, through all that happens to a watch: it may cost time, never an object."""

import queue
import time

import pytest

from integration.lib.kube import KubeTool
from servers.api_proxy import answer, crumbs, cut, raw, silence, stuck, then_garbage


class Maps:
    """ConfigMaps of one namespace, made behind the tool's back."""

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace = cluster, namespace
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    def create(self, name, x="0", **labels):
        return self.cluster.create(self.path, {"metadata": {"name": name, "labels": labels}, "data": {"x": x, "big": "b"}})

    def set(self, name, x):
        return self.cluster.patch(f"{self.path}/{name}", {"data": {"x": x}})

    def delete(self, name):
        return self.cluster.delete(f"{self.path}/{name}")


@pytest.fixture
def maps(cluster, namespace):
    return Maps(cluster, namespace)


def begin(tool, maps, **options):
    """Starts the informer. Returns the objects that it adds until it has synced."""
    tool.send("informer", resource="configmaps", ns=maps.namespace, **options)
    told = []
    while True:
        told.append(tool.hear())
        if told[-1].informer == "synced":
            return [(t.informer, t.key) for t in told if t.informer == "added"]


def hear(tool, seconds=30, troubles=None):
    """The next change. Codes of errors before it go to `troubles`."""
    deadline = time.monotonic() + seconds
    while True:
        told = tool.hear(max(0.01, deadline - time.monotonic()))
        if told.informer == "trouble":
            (troubles if troubles is not None else []).append(told.code)
        else:
            return told.informer, told.key.split("/")[-1], (told.object or {}).get("data", {}).get("x")


def test_existing_objects_are_listed_and_changes_are_reported(tool, maps):
    for i in range(7):
        maps.create(f"m-{i}", color="red" if i % 2 else "green")
    assert sorted(begin(tool, maps, page=3)) == [("added", f"{maps.namespace}/m-{i}") for i in range(7)]
    maps.create("new", x="5", color="red")
    assert hear(tool) == ("added", "new", "5")
    maps.set("m-0", "1")
    assert hear(tool) == ("updated", "m-0", "1")
    maps.delete("m-1")
    assert hear(tool) == ("deleted", "m-1", "0")
    assert tool.ask("lookup", ns=maps.namespace, name="m-0").object["data"] == {"x": "1"}
    assert tool.ask("lookup", ns=maps.namespace, name="m-1").object is None
    assert sorted(tool.ask("each", color="red")["keys"]) == [f"{maps.namespace}/{n}" for n in ("m-3", "m-5", "new")]
    maps.cluster.patch(f"{maps.path}/m-3", {"metadata": {"labels": {"color": None}}})
    hear(tool)
    assert tool.ask("each", color="red")["count"] == 2
    assert len(tool.ask("each")["keys"]) == 7


def test_fields_without_a_reader_are_not_stored(tool, maps):
    maps.create("a")
    begin(tool, maps)
    kept = tool.ask("lookup", ns=maps.namespace, name="a").object
    assert "managedFields" not in kept["metadata"] and kept["data"] == {"x": "0"}


def test_nul_in_a_text_of_one_object_hides_no_other(tool, maps):
    """Any tenant may write it into an annotation. The list of all namespaces was refused as no JSON."""
    maps.create("listed", x="a\0b")
    maps.create("other")
    assert {key.split("/")[1] for _, key in begin(tool, maps)} == {"listed", "other"}
    maps.create("watched", x="\0")
    maps.set("other", "5")
    assert [hear(tool), hear(tool)] == [("added", "watched", "\0"), ("updated", "other", "5")]
    maps.delete("listed")
    assert hear(tool)[:2] == ("deleted", "listed")


def test_selectors_choose_what_is_seen(tool, maps):
    maps.create("a", color="red")
    maps.create("b", color="blue")
    assert begin(tool, maps, labels="color=red") == [("added", f"{maps.namespace}/a")]
    maps.cluster.patch(f"{maps.path}/b", {"metadata": {"labels": {"color": "red"}}})
    assert hear(tool)[:2] == ("added", "b")
    maps.cluster.patch(f"{maps.path}/a", {"metadata": {"labels": {"color": "blue"}}})
    assert hear(tool)[:2] == ("deleted", "a")


def test_a_waiter_is_woken_by_the_change_that_it_waits_for(tool, maps):
    maps.create("a")
    begin(tool, maps, quiet=True)
    key = f"{maps.namespace}/a"
    waits = tool.send("await", key=key, value="9", timeout_ms=50_000)
    maps.set("a", "8")
    changed = time.monotonic()
    maps.set("a", "9")
    assert tool.wait(waits).object["data"]["x"] == "9"
    assert time.monotonic() - changed < 25  # and not when its own time is over
    assert tool.ask("await", key=key, value="10", timeout_ms=300).code == "TIMEOUT"
    waits = tool.send("await", key=key, gone=True)
    maps.delete("a")
    assert tool.wait(waits).code == "OK"


def test_a_watch_in_crumbs_is_a_watch(proxy, through, maps):
    proxy.fault("GET", "watch=1", crumbs(3), times=None)
    begin(through, maps)
    maps.create("a", x="über")
    assert hear(through) == ("added", "a", "über")
    maps.set("a", "2")
    assert hear(through) == ("updated", "a", "2")


@pytest.mark.parametrize("after", [1, 100, 700])
@pytest.mark.parametrize("reset", [False, True])
def test_a_watch_cut_in_the_middle_of_a_line_is_resumed_without_loss(proxy, through, maps, after, reset):
    begin(through, maps)
    proxy.fault("GET", "watch=1", cut(after, reset))
    proxy.fault("GET", "watch=1", cut(after, reset))
    # The first watch runs already: it ends, and the next two are cut.
    maps.create("first")
    assert hear(through)[:2] == ("added", "first")
    lists = len(proxy.seen("GET", "limit="))
    proxy.break_connections()
    for i in range(3):
        maps.create(f"m-{i}")
    troubles = []
    assert [hear(through, troubles=troubles)[:2] for _ in range(3)] == [("added", f"m-{i}") for i in range(3)]
    assert "CORRUPT" not in troubles, "half a line of one watch is no beginning of another's"
    assert len(proxy.seen("GET", "limit=")) == lists, "it was listed anew, where resuming was enough"
    assert through.ask("lookup").count == 4


GARBAGE = {
    "no JSON": b"\x00\xff what?\n",
    "HTML": b"<html><body>502 Bad Gateway</body></html>\n",
    "another document": b'{"hello": "world"}\n',
    "an event without an object": b'{"type":"ADDED"}\n',
    "an object without a name": b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}\n',
    "an unknown type": b'{"type":"SURPRISE","object":{"metadata":{"name":"x","resourceVersion":"1"}}}\n',
    "a megabyte of junk in a line": b"j" * (1 << 20) + b"\n",
    "twenty megabytes without an end": b"{" * (20 << 20),
    "deep": b"[" * 100000 + b"\n",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_in_a_watch_costs_time_but_no_object(proxy, through, maps, what):
    maps.create("a")
    proxy.fault("GET", "watch=1", then_garbage(GARBAGE[what]), times=2)
    begin(through, maps)
    before = through.memory_kib()
    maps.create("b")
    maps.set("a", "7")
    seen = {hear(through), hear(through)}
    assert ("added", "b", "0") in seen and ("updated", "a", "7") in seen
    assert through.ask("lookup").count == 2
    assert through.memory_kib() - before < 24 << 10


LIST_ANSWERS = {
    "HTML": answer(200, b"<html></html>", "text/html"),
    "JSON of another type": answer(200, b"{}", "text/plain"),
    "no list": answer(200, b'{"kind":"Status","apiVersion":"v1"}'),
    "junk": answer(200, b"x" * (1 << 20)),
    "429": answer(429, b"{}", retry_after=1),
    "500": answer(500, b"oops", "text/plain"),
    "503 of a balancer": answer(503, b"<html>no backends</html>", "text/html"),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "half a list": cut(200),
    "a closed door": raw(b""),
}


@pytest.mark.parametrize("what", LIST_ANSWERS)
def test_a_list_that_goes_wrong_is_taken_again(proxy, through, maps, what):
    maps.create("a")
    maps.create("b")
    proxy.fault("GET", "limit=", LIST_ANSWERS[what], times=2)
    assert sorted(begin(through, maps)) == [("added", f"{maps.namespace}/{n}") for n in "ab"]


def test_a_list_that_expires_between_pages_begins_again(proxy, through, maps):
    for i in range(6):
        maps.create(f"m-{i}")
    gone = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}'
    proxy.fault("GET", "continue=", answer(410, gone))
    assert len(begin(through, maps, page=2)) == 6
    assert through.ask("lookup").count == 6


def test_an_object_deleted_while_disconnected_is_reported_after_a_compaction(cluster, proxy, through, maps):
    """A real compaction: the API server restarts, so that its cache is empty too, and the old version is 410."""
    for name in ("stays", "goes"):
        maps.create(name)
    begin(through, maps)
    proxy.fault("GET", "watch=1", answer(503, b"{}"), times=None)
    proxy.break_connections()
    maps.delete("goes")
    maps.set("stays", "1")
    maps.create("comes")
    cluster.compact()
    cluster.stop_api()
    cluster.start_api()
    lists = len(proxy.seen("GET", "limit="))
    proxy.no_faults()
    assert {hear(through), hear(through), hear(through)} == {("deleted", "goes", "0"), ("updated", "stays", "1"),
                                                             ("added", "comes", "0")}
    assert len(proxy.seen("GET", "limit=")) > lists


def test_an_api_server_killed_in_mid_watch_costs_time_only(cluster, tool, maps):
    maps.create("a")
    begin(tool, maps)
    cluster.stop_api()
    assert tool.hear().informer == "trouble"
    cluster.start_api()
    maps.set("a", "1")
    assert hear(tool) == ("updated", "a", "1")


def test_a_server_that_is_silent_is_left(proxy, maps):
    """The list: an answer that does not come is a timeout, and is asked for again."""
    maps.create("a")
    proxy.fault("GET", "/configmaps/a", silence(30))
    with KubeTool(proxy.kubeconfig) as tool:
        start = time.monotonic()
        assert tool.ask("get", resource="configmaps", ns=maps.namespace, name="a", timeout_ms=1000).code == "TIMEOUT"
        assert time.monotonic() - start < 15


@pytest.mark.parametrize("how, reported", [(silence(600), ["TIMEOUT"]), (stuck(), [])])
@pytest.mark.parametrize("times", [1, None])
def test_a_watch_that_brings_nothing_is_left(proxy, through, maps, how, reported, times):
    """Its connection stays open. If every watch is like that, lists find the changes. A watch that began may have had nothing
    to bring."""
    maps.create("a")
    proxy.fault("GET", "watch=1", how, times=times)
    begin(through, maps, silence_ms=1000)
    maps.set("a", "1")
    troubles = []
    assert hear(through, troubles=troubles) == ("updated", "a", "1")
    assert troubles[:1] == reported


def test_more_objects_than_the_ceiling_are_an_error_and_not_memory(tool, maps):
    for i in range(5):
        maps.create(f"m-{i}")
    tool.send("informer", resource="configmaps", ns=maps.namespace, most=3)
    while (told := tool.hear()).informer != "trouble":
        pass
    assert told.code == "NO_SPACE" and "more than 3" in told.text
    assert tool.ask("lookup").count == 3
    assert not tool.ask("lookup").synced


def over_limit(tool):
    """Waits for the error, and returns whether the copy claims to be complete."""
    while (told := tool.hear()).informer != "trouble":
        pass
    assert told.code == "NO_SPACE" and "more than 3 configmaps" in told.text
    return tool.ask("lookup").synced


def test_copy_that_grew_over_its_limit_is_not_complete_until_it_is_below(tool, maps):
    for i in range(3):
        maps.create(f"m-{i}")
    begin(tool, maps, most=3)
    assert tool.ask("lookup").synced
    maps.create("a-first-in-the-list")
    assert not over_limit(tool)
    time.sleep(2)
    assert not tool.ask("lookup").synced, "a list with an object too many counts as complete"
    maps.delete("m-1")
    seen = []
    while not seen or seen[-1][0] != "synced":
        seen.append(hear(tool))
    assert {s[:2] for s in seen[:-1]} == {("deleted", "m-1"), ("added", "a-first-in-the-list")}
    found = tool.ask("lookup")
    assert found.synced and found.count == 3


def test_objects_that_are_deleted_since_the_last_list_do_not_count_against_the_limit(proxy, through, maps):
    for i in range(3):
        maps.create(f"old-{i}")
    begin(through, maps, most=3)
    gone = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}'
    proxy.fault("GET", "watch=1", answer(410, gone), times=None)
    proxy.fault("GET", "limit=", answer(503, b"{}"), times=None)
    proxy.break_connections()
    for i in range(3):
        maps.create(f"new-{i}")
        maps.delete(f"old-{i}")
    proxy.no_faults()
    troubles = []
    seen = {hear(through, troubles=troubles)[:2] for _ in range(6)}
    assert seen == {("added", f"new-{i}") for i in range(3)} | {("deleted", f"old-{i}") for i in range(3)}
    assert "NO_SPACE" not in troubles
    assert through.ask("lookup").count == 3


def test_a_server_that_ends_every_watch_is_not_asked_without_pause(proxy, through, maps):
    proxy.fault("GET", "watch=1", answer(200, b""), times=None)
    begin(through, maps)
    time.sleep(3)
    assert 2 <= len(proxy.seen("GET", "watch=1")) <= 12
    assert len(proxy.seen("GET", "limit=")) == 1
    with pytest.raises(queue.Empty):
        through.told.get_nowait()
