# SPDX-License-Identifier: Apache-2.0
"""Requests through what networks, proxies and tired servers do to them."""

import subprocess
import time

import pytest

from integration.lib.control import eventually
from integration.lib.kube import KubeTool
from servers.api_proxy import answer, crumbs, cut, raw, silence


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


BROKEN = {"a closed door": raw(b""), "a reset in the middle": cut(50, reset=True), "half an answer": cut(50),
          "no HTTP": raw(b"hello\r\n"), "500": answer(500), "503 of a balancer": answer(503, b"<html>", "text/html"),
          "HTML with 200": answer(200, b"<html>", "text/html"), "JSON that is cut": answer(200, b'{"kind":"Conf'),
          "429 without a time": answer(429)}


@pytest.mark.parametrize("what", BROKEN)
def test_a_read_is_repeated_after_a_failure_that_passes(proxy, through, namespace, what):
    through.ask("create", resource="configmaps", ns=namespace, body=config_map("a"))
    proxy.fault("GET", "/configmaps/a", BROKEN[what], times=3)
    assert through.ask("get", resource="configmaps", ns=namespace, name="a").code == "OK"
    assert len(proxy.seen("GET", "/configmaps/a")) == 4


@pytest.mark.parametrize("what", BROKEN)
def test_a_create_is_not_repeated_by_itself(proxy, through, namespace, what):
    proxy.fault("POST", "/configmaps", BROKEN[what])
    made = through.ask("create", resource="configmaps", ns=namespace, body=config_map("a"))
    assert made.code in ("IO", "CORRUPT", "AGAIN"), made
    assert made.error in (5002, 5004, 5005)
    assert len(proxy.seen("POST", "/configmaps")) == 1


def test_a_request_answered_429_is_repeated_after_retry_after(proxy, through, namespace):
    proxy.fault("POST", "/configmaps", answer(429, b"{}", retry_after=1), times=2)
    assert through.ask("create", resource="configmaps", ns=namespace, body=config_map("a")).code == "OK"
    first, second, third = proxy.seen("POST", "/configmaps")
    assert second - first >= 1 and third - second >= 1


def test_requests_to_a_server_that_always_fails_end_in_time(proxy, through, namespace):
    proxy.fault("GET", "/configmaps/a", answer(500), times=None)
    start = time.monotonic()
    failed = through.ask("get", resource="configmaps", ns=namespace, name="a", timeout_ms=2000)
    assert (failed.code, failed.error) == ("AGAIN", 5005)
    assert time.monotonic() - start < 20
    assert len(proxy.seen("GET", "/configmaps/a")) <= 11


def test_an_answer_in_crumbs_is_an_answer(proxy, through, namespace):
    through.ask("create", resource="configmaps", ns=namespace, body=config_map("a"))
    proxy.fault("GET", "/configmaps/a", crumbs(7, 0.002))
    assert through.ask("get", resource="configmaps", ns=namespace, name="a").object["metadata"]["name"] == "a"


@pytest.mark.parametrize("items, code", [(b"null", "OK"), (b"{}", "CORRUPT"), (b'{"a":1}', "CORRUPT"), (b"7", "CORRUPT")])
def test_items_null_are_an_empty_list_and_other_than_an_array_an_error(proxy, through, namespace, items, code):
    body = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":%s}' % items
    proxy.fault("GET", "/configmaps", answer(200, body), times=None)
    listed = through.ask("list", resource="configmaps", ns=namespace)
    assert listed.code == code
    assert code != "OK" or listed.object["items"] == []


def test_an_answer_that_is_too_long_is_an_error(proxy, namespace):
    with KubeTool(proxy.kubeconfig, "--body-max", 1 << 20) as tool:
        proxy.fault("GET", "/configmaps/a", answer(200, b" " * (64 << 20)), times=None)
        before = tool.memory_kib()
        failed = tool.ask("get", resource="configmaps", ns=namespace, name="a")
        assert (failed.code, failed.error) == ("NO_SPACE", 5007)
        assert tool.memory_kib() - before < 16 << 10


def test_exempt_requests_that_hang_do_not_hold_up_the_others(proxy, namespace):
    with KubeTool(proxy.kubeconfig, "--qps", 1000, "--burst", 1000) as tool:
        proxy.fault("GET", "/configmaps/hangs", silence(30), times=None)
        for _ in range(70):  # 64 others are sent at once
            tool.send("get", resource="configmaps", ns=namespace, name="hangs", exempt=True, timeout_ms=60_000)
        eventually(lambda: len(proxy.seen("GET", "/configmaps/hangs")) == 70)
        assert tool.ask("get", resource="configmaps", ns=namespace, name="a", timeout_ms=10_000).code == "NOT_FOUND"


def test_requests_keep_to_the_rate_and_to_their_order(proxy, namespace):
    with KubeTool(proxy.kubeconfig, "--qps", 20, "--burst", 5) as tool:
        asked = [tool.send("get", resource="configmaps", ns=namespace, name=f"m-{i:02}") for i in range(25)]
        for number in asked:
            assert tool.wait(number).code == "NOT_FOUND"
        whens = proxy.seen("GET", "/configmaps/m-")
        # On a busy machine it may take longer; one a second would take 20.
        assert 0.8 < whens[-1] - whens[0] < 15, "five at once, and then one in 50 ms"
        came = [int(path[-2:]) for _, _, path, _ in proxy.requests if "/m-" in path]
        assert all(abs(n - at) <= 5 for at, n in enumerate(came)), "threads of the proxy may swap neighbours"


def test_more_requests_than_may_wait_are_refused_at_once(proxy, namespace):
    with KubeTool(proxy.kubeconfig, "--qps", 1, "--burst", 1, "--queue", 3) as tool:
        asked = [tool.send("get", resource="configmaps", ns=namespace, name="a", timeout_ms=1500) for _ in range(6)]
        codes = sorted(tool.wait(n).code for n in asked)
        assert codes == ["NOT_FOUND", "NOT_FOUND", "NO_SPACE", "NO_SPACE", "TIMEOUT", "TIMEOUT"]


def test_a_slow_server_has_no_more_than_so_many_requests_at_once(proxy, namespace):
    proxy.fault("GET", "/configmaps/a", silence(2), times=None)
    with KubeTool(proxy.kubeconfig, "--qps", 1000, "--burst", 1000) as tool:
        asked = [tool.send("get", resource="configmaps", ns=namespace, name="a", timeout_ms=1500) for _ in range(100)]
        assert {tool.wait(n).code for n in asked} == {"TIMEOUT"}
        whens = proxy.seen("GET", "/configmaps/a")
        assert len([when for when in whens if when - whens[0] < 1]) == 64


# ---- who we are


@pytest.fixture
def account(cluster, namespace):
    cluster.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    cluster.create(f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]})
    cluster.create(f"{roles}/rolebindings", {
        "metadata": {"name": "reader"}, "roleRef": {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}]})
    token, deadline = cluster.token(namespace, "robot"), time.monotonic() + 10
    while cluster.raw("GET", f"/api/v1/namespaces/{namespace}/configmaps", token=token)[0] == 403:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # the binding is not known to the authorizer yet
    return lambda: cluster.token(namespace, "robot")


def test_a_token_that_was_replaced_on_disk_is_taken_when_the_old_one_is_refused(cluster, namespace, account, tmp_path):
    file = tmp_path / "token"
    file.write_text(account() + "\n")
    with KubeTool(cluster.write_kubeconfig("rotating", {"tokenFile": str(file)})) as tool:
        ask = lambda: tool.ask("get", resource="configmaps", ns=namespace, name="a")  # noqa: E731
        assert ask().code == "NOT_FOUND"
        file.write_text("expired")
        assert ask().code == "NOT_FOUND", "it is not read for every request"
    with KubeTool(cluster.write_kubeconfig("rotating", {"tokenFile": str(file)})) as tool:
        refused = tool.ask("get", resource="configmaps", ns=namespace, name="a")
        assert (refused.code, refused.status, refused.error) == ("DENIED", 401, 5003)
        file.write_text(account())
        assert tool.ask("get", resource="configmaps", ns=namespace, name="a").code == "NOT_FOUND"
        file.unlink()
        assert tool.ask("get", resource="configmaps", ns=namespace, name="a").code == "NOT_FOUND"


def test_inside_a_pod_all_is_found_where_the_kubelet_puts_it(cluster, namespace, account, tmp_path):
    (tmp_path / "token").write_text(account())
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "ca.crt").write_text((cluster.root / "ca.crt").read_text())
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.port),
           "CISTERN_SERVICE_ACCOUNT_DIR": str(tmp_path)}
    with KubeTool(None, env=pod) as tool:
        assert tool.ask("get", resource="configmaps", ns=namespace, name="a").code == "NOT_FOUND"
        assert tool.ask("create", resource="configmaps", ns=namespace, body=config_map("a")).code == "DENIED"


def test_a_server_with_a_certificate_of_another_authority_is_refused(cluster, namespace, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other",
                    "-keyout", tmp_path / "key", "-out", tmp_path / "ca.crt"], check=True, capture_output=True)
    (tmp_path / "token").write_text("secret-token")
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.port),
           "CISTERN_SERVICE_ACCOUNT_DIR": str(tmp_path)}
    with KubeTool(None, env=pod) as tool:
        failed = tool.ask("get", resource="configmaps", ns=namespace, name="a", timeout_ms=2000)
        assert failed.code == "DENIED" and "is not trusted" in failed.text and "secret" not in failed.text
