# SPDX-License-Identifier: Apache-2.0
"""A Job gets credentials of its own volume, a node those of the volumes on it. All other requests are denied."""

import concurrent.futures
import time

import pytest

from .world import NAMESPACE


@pytest.fixture
def team(world):
    return world.trusting_namespace()


@pytest.fixture
def volume(world, sts, team):
    world.account(team, "reader", opted_in=True, **{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"})
    sts.roles["arn:aws:iam::1:role/r"] = {"sub": f"system:serviceaccount:{team}:reader", "aud": "sts.amazonaws.com"}
    return world.volume(team, {"uri": "s3://bucket/", "serviceAccountName": "reader", "export": {"uri": "s3://results/"}})


def assert_refused(answer, status, number, words):
    assert answer.status == status and answer.error["id"] == f"CIS{number}" and words in answer.error["message"], answer


def test_job_gets_credentials_of_its_own_volume_only(world, sts, broker, team, volume):
    other = world.volume(team, {"uri": "s3://bucket/", "serviceAccountName": "reader"})
    token = world.job_token(volume)
    assert broker.ask(token, volume).status == 200
    assert_refused(broker.ask(token, other), 403, 1903, "not of its hydrate Job")
    assert_refused(broker.ask(token, volume, "export"), 403, 1903, "not of its export Job")
    assert_refused(broker.ask(token, "pvc-none"), 403, 1903, "CisternVolume 'pvc-none': not found")
    assert_refused(broker.ask(world.token_of(world.pod()), volume), 403, 1903, "not of its hydrate Job")


def test_job_on_another_node_is_denied(world, broker, volume):
    token = world.job_token(volume, node="node-b")
    assert_refused(broker.ask(token, volume), 403, 1903, "another node")


def test_node_gets_credentials_of_its_volumes_only(world, broker, volume):
    here = world.token_of(world.pod(account="cistern-node"))
    there = world.token_of(world.pod(account="cistern-node", node="node-b"))
    assert broker.ask(here, volume).status == 200
    assert broker.ask(here, volume, "export").status == 200
    assert_refused(broker.ask(there, volume), 403, 1903, "another node")


def test_token_without_pod_is_denied(world, broker, volume):
    token = world.cluster.token(NAMESPACE, "cistern-node", ["cistern-broker"])
    assert_refused(broker.ask(token, volume), 403, 1903, "not bound to a pod")


def test_other_account_is_denied(world, broker, team, volume):
    world.account(team, "cistern-job")
    token = world.cluster.token(team, "cistern-job", ["cistern-broker"])
    assert_refused(broker.ask(token, volume), 403, 1903, f"system:serviceaccount:{team}:cistern-job")
    world.account(NAMESPACE, "stranger")
    token = world.cluster.token(NAMESPACE, "stranger", ["cistern-broker"])
    assert_refused(broker.ask(token, volume), 403, 1903, "neither the node driver nor a Job of Cistern")


def test_token_of_another_audience_is_rejected(world, broker, volume):
    pod = world.pod(f"hydrate-{world.volume_id(volume)}")
    assert_refused(broker.ask(world.token_of(pod, "sts.amazonaws.com"), volume), 401, 1902, "wrong audience")
    assert_refused(broker.ask(world.token_of(pod, "https://kubernetes.default.svc"), volume), 401, 1902, "wrong audience")


def test_token_of_a_deleted_pod_is_rejected(world, broker, volume):
    pod = world.pod(f"hydrate-{world.volume_id(volume)}")
    token = world.token_of(pod)
    assert broker.ask(token, volume).status == 200
    world.cluster.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    assert_refused(broker.ask(token, volume), 401, 1902, "was deleted")


def test_forged_token_is_rejected(world, broker, volume):
    head, claims, signature = world.job_token(volume).split(".")
    forged = f"{head}.{claims}.{signature[:-8]}AAAAAAAA"
    assert_refused(broker.ask(forged, volume), 401, 1902, "does not accept it")
    assert_refused(broker.ask("rubbish", volume), 401, 1902, "not a service account token")
    assert_refused(broker.ask(None, volume), 401, 1902, "no bearer token")
    expired = "eyJhbGciOiJub25lIn0.eyJhdWQiOlsiY2lzdGVybi1icm9rZXIiXSwiZXhwIjoxNzAwMDAwMDAwfQ.x"
    assert_refused(broker.ask(expired, volume), 401, 1902, "expired")


@pytest.mark.parametrize("body", ["", "{", "[]", '{"volume": 1, "for": "hydrate"}', '{"volume": "x", "for": "read"}',
                                  '{"volume": "../x", "for": "hydrate"}', '{"volume": "x", "for": "hydrate", "more": 1}',
                                  '{"volume": "x", "for": "hydrate", "scheme": "file"}', '{"for": "hydrate"}',
                                  b"\xff\xfe", '{"volume": "x", "for": "hydrate", "refused": "zz"}'])
def test_malformed_request_is_invalid(world, broker, volume, body):
    answer = broker.ask(world.job_token(volume), volume, body=body)
    assert answer.status == 400 and answer.error["code"] == "INVALID", answer


def test_scheme_of_another_store_is_denied(world, broker, volume):
    assert_refused(broker.ask_as_job(volume, scheme="gs"), 403, 1908, "the source has another scheme")


def test_token_with_many_rejections_is_throttled(world, broker, volume):
    good = world.job_token(volume)
    head, claims, _ = good.split(".")
    answers = [broker.ask(f"{head}.{claims}.AAAA", volume, source="127.0.0.7") for _ in range(14)]
    assert [a.status for a in answers[:10]] == [401] * 10
    last = answers[-1]
    assert last.status == 429 and last.error["id"] == "CIS1910" and int(last.headers["retry-after"]) > 0, last
    assert broker.ask(f"{head}.{claims}.AAAA", volume).status == 429  # from another address, too
    assert broker.ask(good, volume, source="127.0.0.7").status == 200  # another token at the same address


def test_200_concurrent_requests_make_one_exchange(world, sts, broker, volume):
    sts.late = 0.5
    token = world.job_token(volume)
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        began = time.monotonic()
        answers = list(pool.map(lambda i: broker.ask(token, volume, source=f"127.0.1.{i % 8 + 1}"), range(200)))
    assert {(a.status, a.sessionToken) for a in answers} == {(200, "token-1")}
    assert sts.given == 1
    assert time.monotonic() - began < 30
