# SPDX-License-Identifier: Apache-2.0
"""Who may have what: a Job its own volume's credentials, a node those of the volumes on it, and nobody anything else."""

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


def test_a_job_gets_its_own_volumes_only(world, sts, broker, team, volume):
    other = world.volume(team, {"uri": "s3://bucket/", "serviceAccountName": "reader"})
    token = world.job_token(volume)
    assert broker.ask(token, volume).status == 200
    assert_refused(broker.ask(token, other), 403, 1903, "not of its hydrate Job")
    assert_refused(broker.ask(token, volume, "export"), 403, 1903, "not of its export Job")
    assert_refused(broker.ask(token, "pvc-none"), 403, 1903, "no volume")
    assert_refused(broker.ask(world.token_of(world.pod()), volume), 403, 1903, "not of its hydrate Job")


def test_a_job_on_another_node_is_refused(world, broker, volume):
    token = world.job_token(volume, node="node-b")
    assert_refused(broker.ask(token, volume), 403, 1903, "another node")


def test_a_node_gets_the_volumes_on_it_only(world, broker, volume):
    here = world.token_of(world.pod(account="cistern-node"))
    there = world.token_of(world.pod(account="cistern-node", node="node-b"))
    assert broker.ask(here, volume).status == 200
    assert broker.ask(here, volume, "export").status == 200
    assert_refused(broker.ask(there, volume), 403, 1903, "another node")


def test_a_token_that_is_bound_to_no_pod_is_refused(world, broker, volume):
    token = world.cluster.token(NAMESPACE, "cistern-node", ["cistern-broker"])
    assert_refused(broker.ask(token, volume), 403, 1903, "bound to no pod")


def test_another_account_is_refused(world, broker, team, volume):
    world.account(team, "cistern-job")
    token = world.cluster.token(team, "cistern-job", ["cistern-broker"])
    assert_refused(broker.ask(token, volume), 403, 1903, f"system:serviceaccount:{team}:cistern-job")
    world.account(NAMESPACE, "stranger")
    token = world.cluster.token(NAMESPACE, "stranger", ["cistern-broker"])
    assert_refused(broker.ask(token, volume), 403, 1903, "neither a node's agent nor a Job of ours")


def test_a_token_of_another_audience_is_refused_unasked(world, broker, volume):
    pod = world.pod(f"hydrate-{world.volume_id(volume)}")
    assert_refused(broker.ask(world.token_of(pod, "sts.amazonaws.com"), volume), 401, 1902, "another audience")
    assert_refused(broker.ask(world.token_of(pod, "https://kubernetes.default.svc"), volume), 401, 1902, "another audience")


def test_a_deleted_pods_token_is_refused_at_once(world, broker, volume):
    pod = world.pod(f"hydrate-{world.volume_id(volume)}")
    token = world.token_of(pod)
    assert broker.ask(token, volume).status == 200
    world.cluster.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    assert_refused(broker.ask(token, volume), 401, 1902, "is gone")


def test_a_forged_token_is_refused(world, broker, volume):
    head, claims, signature = world.job_token(volume).split(".")
    forged = f"{head}.{claims}.{signature[:-8]}AAAAAAAA"
    assert_refused(broker.ask(forged, volume), 401, 1902, "does not know it")
    assert_refused(broker.ask("rubbish", volume), 401, 1902, "no token of a service account")
    assert_refused(broker.ask(None, volume), 401, 1902, "no bearer token")
    expired = "eyJhbGciOiJub25lIn0.eyJhdWQiOlsiY2lzdGVybi1icm9rZXIiXSwiZXhwIjoxNzAwMDAwMDAwfQ.x"
    assert_refused(broker.ask(expired, volume), 401, 1902, "expired")


@pytest.mark.parametrize("body", ["", "{", "[]", '{"volume": 1, "for": "hydrate"}', '{"volume": "x", "for": "read"}',
                                  '{"volume": "../x", "for": "hydrate"}', '{"volume": "x", "for": "hydrate", "more": 1}',
                                  '{"volume": "x", "for": "hydrate", "scheme": "file"}', '{"for": "hydrate"}',
                                  b"\xff\xfe", '{"volume": "x", "for": "hydrate", "refused": "zz"}'])
def test_a_request_that_makes_no_sense_is_refused(world, broker, volume, body):
    answer = broker.ask(world.job_token(volume), volume, body=body)
    assert answer.status == 400 and answer.error["code"] == "INVALID", answer


def test_a_scheme_that_the_volume_does_not_name_is_refused(world, broker, volume):
    assert_refused(broker.ask_as_job(volume, scheme="gs"), 403, 1908, "no source in such a store")


def test_who_is_refused_again_and_again_is_not_looked_at_for_a_while(world, broker, volume):
    good = world.job_token(volume)
    head, claims, _ = good.split(".")
    answers = [broker.ask(f"{head}.{claims}.AAAA", volume, source="127.0.0.7") for _ in range(14)]
    assert [a.status for a in answers[:10]] == [401] * 10
    last = answers[-1]
    assert last.status == 429 and last.error["id"] == "CIS1910" and int(last.headers["retry-after"]) > 0, last
    assert broker.ask(f"{head}.{claims}.AAAA", volume).status == 429  # from another address too
    assert broker.ask(good, volume, source="127.0.0.7").status == 200  # a neighbour behind the same one


def test_two_hundred_calls_at_once_make_one_exchange(world, sts, broker, volume):
    sts.late = 0.5
    token = world.job_token(volume)
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        began = time.monotonic()
        answers = list(pool.map(lambda i: broker.ask(token, volume, source=f"127.0.1.{i % 8 + 1}"), range(200)))
    assert {(a.status, a.sessionToken) for a in answers} == {(200, "token-1")}
    assert sts.given == 1
    assert time.monotonic() - began < 30
