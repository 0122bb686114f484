# SPDX-License-Identifier: Apache-2.0
"""Faults that must not break a hydration, as a table: each row ends with the right tree, or with an error that names the
object. The end of the table names the rows of other files, and checks that they exist."""

import json
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest

from integration.lib.buckets import clean_environment, contents
from paths import CISTERN
from servers.answering import Answering
from servers.bucket import KEYS, BucketServer

from .lib import DENIED, DONE, ENVIRONMENT, INTERRUPTED, MISMATCH, NO_SPACE, NOT_FOUND, SOME_FAILED, TRANSIENT, USAGE

pytestmark = pytest.mark.asan
HERE = pathlib.Path(__file__).resolve().parent
SMALL = 12
ONE, LARGE = "data/small/object-000000004", "data/large/object-000000000"
QUICK = ("--retries", "3")


@pytest.fixture(scope="module", params=["s3", "gs"])
def running(request):
    with BucketServer("--objects", "data/large/:1:20Mi", "--objects", f"data/small/:{SMALL}:1-50000") as bucket:
        bucket.scheme = request.param
        names = ["large/object-000000000"] + [f"small/object-{i:09}" for i in range(SMALL)]
        bucket.truth = {name: bucket.content("data/" + name) for name in names}
        yield bucket


@pytest.fixture
def server(running):
    yield running
    running.no_faults()


@pytest.fixture(params=["s3", "gs"])
def many(request):
    """Four pages."""
    with BucketServer("--objects", "data/:3500:10") as bucket:
        bucket.scheme = request.param
        yield bucket


def words(server, folder, *flags, url=None):
    how = ["--path-style"] if server.scheme == "s3" else ["--anonymous"]
    return [CISTERN, "hydrate", "--no-progress", *how, "--endpoint", url or server.url, *flags, f"{server.scheme}://bench/data/",
            folder]


def hydrate(server, folder, *flags, env=None, url=None, before=(), seconds=60):
    return subprocess.run([*before, *words(server, folder, *flags, url=url)], env=env or clean_environment(**KEYS),
                          capture_output=True, text=True, timeout=seconds, check=False)


def stall_of(*rules):
    """Short only for rules that stall: on a busy machine, any server may pause for a second."""
    return ("--stall", "1s") if re.search("do=(stall|slow)", " ".join(rules)) else ()


def ends_right(server, run, folder):
    assert run.returncode == DONE, run.stderr
    assert contents(folder) == server.truth


def ends_in_a_sentence(server, run, folder, codes, *patterns):
    assert run.returncode in codes, run.stderr
    errors = [line for line in run.stderr.splitlines() if " retrying, " not in line]  # a line of progress on a slow machine
    told = [line for line in errors if all(re.search(p, line) for p in patterns)]
    assert told and re.search(r"CIS\d{4}", told[0]), f"no line with {patterns} in:\n{run.stderr}"
    for name, content in contents(folder).items():  # what is there is right, whatever is not
        assert content == server.truth[name], name


# The row, its rules; all are met and outlived.
OUTLIVED = [
    ("reset at any byte", ["op=get,nth=1,do=reset", "op=get,nth=1,do=reset:0", "op=get,nth=3,do=reset:700",
                           f"op=get,key={ONE},nth=1,do=reset:1", f"op=get,key={LARGE},nth=2,do=reset:3000001"]),
    ("resets now and then", ["op=get,every=3,times=5,do=reset:100"]),
    ("a list page that is cut", ["op=list,nth=1,do=reset", "op=list,nth=1,do=reset:300", "op=list,nth=1,do=truncate:300"]),
    ("a list page that is late", ["op=list,nth=1,do=latency:300"]),
    ("stalled for ever", ["op=list,nth=1,do=stall:200", f"op=get,key={ONE},nth=1,do=stall",
                          f"op=get,key={LARGE},nth=2,do=stall:70000"]),
    ("one byte a second", ["op=list,nth=1,do=slow:1", f"op=get,key={ONE},nth=1,do=slow:1",
                           f"op=get,key={LARGE},nth=2,do=slow:1"]),
    ("truncated bodies", ["op=get,nth=2,do=truncate:0", f"op=get,key={ONE},nth=1,do=truncate",
                          f"op=get,key={LARGE},nth=1,do=truncate:5000000"]),
    ("over-long bodies", [f"op=get,key={ONE},nth=1,do=long:10:silent", f"op=get,key={LARGE},nth=1,do=long:10:silent"]),
    ("wrong Content-Length", [f"op=get,key={LARGE},nth=1,do=wrong-length:99", f"op=get,key={ONE},nth=1,do=wrong-length:3"]),
    ("no Content-Length", ["op=get,do=no-length"]),
    ("wrong Content-Range", [f"op=get,key={LARGE},nth=2,do=wrong-range"]),
    ("200 for a ranged GET", [f"op=get,key={LARGE},nth=2,do=no-range"]),
    ("206 with another range", [f"op=get,key={LARGE},nth=2,do=other-range"]),
    ("500, 502", ["op=get,nth=1,times=2,do=status:500", "op=get,after=5,times=2,do=status:502", "op=list,nth=1,do=status:500"]),
    ("503 with and without Retry-After", ["op=get,every=4,times=3,do=status:503", "op=get,every=5,times=2,do=status:503:1",
                                          "op=list,nth=1,do=status:503:1"]),
    ("429 storms", ["op=get,every=2,times=12,do=status:429", "op=list,nth=1,do=status:429"]),
    ("403 that heals", [f"op=get,key={ONE},nth=1,do=status:403", f"op=get,key={LARGE},after=1,times=3,do=status:403",
                        "op=get,after=6,times=1,do=status:401"]),
    ("missing checksum header", ["op=any,do=no-checksum"]),
    ("corrupt bytes with a right length", [f"op=get,key={ONE},nth=1,do=corrupt:0", f"op=get,key={LARGE},nth=2,do=corrupt:4096"]),
    ("a megabyte of garbage instead of a body", [f"op=get,key={ONE},nth=1,do=garbage:1000000",
                                                 f"op=get,key={LARGE},nth=1,do=garbage-body"]),
]


@pytest.mark.parametrize("rules", [r for _, r in OUTLIVED], ids=[name for name, _ in OUTLIVED])
def test_it_is_outlived(server, tmp_path, rules):
    server.fault(*rules)
    ends_right(server, hydrate(server, tmp_path / "out", *stall_of(*rules)), tmp_path / "out")
    assert all(server.fired()), server.fired()


ONE_FAILS, LARGE_FAILS = r"small/object-000000004", r"large/object-000000000"
AWAY = "redirect:307:http://127.0.0.1:1/"
# The row, its rule, exit codes, what the sentence says.
NAMED = [
    ("wrong Content-Length, each time", f"op=get,key={ONE},do=wrong-length:3", {MISMATCH, TRANSIENT}, ONE_FAILS + ".*CIS16"),
    ("403 that stays", f"op=get,key={ONE},do=status:403", {SOME_FAILED, DENIED}, ONE_FAILS + ".*CIS1403"),
    ("404 of a listed object", f"op=get,key={ONE},do=status:404", {SOME_FAILED, TRANSIENT}, ONE_FAILS + ".*CIS1404"),
    ("a status that nobody knows", f"op=get,key={ONE},do=status:418", {SOME_FAILED, TRANSIENT}, ONE_FAILS + ".*418"),
    ("object deleted between list and GET", f"op=get,key={ONE},do=remove", {SOME_FAILED}, ONE_FAILS),
    ("object overwritten between list and GET", f"op=get,key={ONE},do=change", {MISMATCH}, ONE_FAILS + ".*CIS1409"),
    ("object overwritten between two parts", f"op=get,key={LARGE},nth=2,do=change", {MISMATCH}, LARGE_FAILS + ".*CIS1409"),
    ("object deleted between two parts", f"op=get,key={LARGE},nth=2,do=remove", {SOME_FAILED}, LARGE_FAILS),
    ("stalled for ever, each time", f"op=get,key={ONE},do=stall:1", {TRANSIENT}, ONE_FAILS),
    ("one byte a second, each time", f"op=get,key={ONE},do=slow:1", {TRANSIENT}, ONE_FAILS),
    ("over-long bodies, each time", f"op=get,key={ONE},do=long:10", {MISMATCH}, ONE_FAILS),
    ("wrong Content-Range, each time", f"op=get,key={LARGE},do=wrong-range", {MISMATCH}, LARGE_FAILS),
    ("200 for a ranged GET, each time", f"op=get,key={LARGE},do=no-range", {MISMATCH}, LARGE_FAILS),
    ("206 with another range, each time", f"op=get,key={LARGE},do=other-range", {MISMATCH}, LARGE_FAILS),
    ("corrupt bytes, each time", f"op=get,key={ONE},do=corrupt:5", {MISMATCH}, ONE_FAILS + ".*CIS1422"),
    ("corrupt bytes of a large one, each time", f"op=get,key={LARGE},do=corrupt:9", {MISMATCH}, LARGE_FAILS + ".*CIS1422"),
    ("garbage instead of an answer, each time", f"op=get,key={ONE},do=garbage", {SOME_FAILED, TRANSIENT, MISMATCH}, ONE_FAILS),
    ("redirect 307 to another host", f"op=get,key={ONE},do={AWAY}", {TRANSIENT, SOME_FAILED}, ONE_FAILS + ".*307.*'http://127.0.0.1:1/'.*CIS1301"),
    ("redirect 301 for the region", f"op=any,do={AWAY.replace('307', '301')}", {USAGE, SOME_FAILED, TRANSIENT}, "301.*'http://127.0.0.1:1/'.*CIS1301"),
    ("redirect 307 of a list page", f"op=list,do={AWAY}", {SOME_FAILED, TRANSIENT}, "307.*CIS1301"),
    ("403 for the listing", "op=list,do=status:403", {DENIED}, "bench.*CIS1403"),
    ("404 for the listing", "op=list,do=status:404", {NOT_FOUND}, "bench"),
]


@pytest.mark.parametrize("rule, codes, pattern", [row[1:] for row in NAMED], ids=[row[0] for row in NAMED])
def test_it_ends_in_a_sentence_and_all_else_is_there(server, tmp_path, rule, codes, pattern):
    server.fault(rule)
    run = hydrate(server, tmp_path / "out", *QUICK, *stall_of(rule))
    assert all(server.fired())
    ends_in_a_sentence(server, run, tmp_path / "out", codes, pattern)
    assert len(contents(tmp_path / "out")) == (len(server.truth) - 1 if "key=" in rule else 0)
    server.no_faults()
    ends_right(server, hydrate(server, tmp_path / "out"), tmp_path / "out")


@pytest.mark.parametrize("key, name", [(ONE, ONE_FAILS), (LARGE, LARGE_FAILS)], ids=["small", "large"])
def test_wrong_checksum_header_is_found_without_one_in_the_listing(server, tmp_path, key, name):
    server.fault(f"op=any,key={key},do=checksum")
    run = hydrate(server, tmp_path / "out", *QUICK)
    if server.scheme == "s3":
        ends_in_a_sentence(server, run, tmp_path / "out", {MISMATCH}, name + ".*CIS1422")
    else:
        ends_right(server, run, tmp_path / "out")


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_from_the_start_is_reported_at_once(server, tmp_path, status):
    server.fault(f"op=get,do=status:{status}")
    server.forget_stats()
    run = hydrate(server, tmp_path / "out")
    ends_in_a_sentence(server, run, tmp_path / "out", {SOME_FAILED, DENIED}, ONE_FAILS, f"CIS{1000 + status}")
    assert server.stats()["get"] <= 2 * (SMALL + 3)  # the large one has three parts


def test_a_refusal_in_the_midst_of_a_listing_heals(many, tmp_path):
    many.fault("op=list,after=1,times=2,do=status:403")
    run = hydrate(many, tmp_path / "out")
    assert run.returncode == DONE and len(contents(tmp_path / "out")) == 3500, run.stderr
    assert many.fired() == [2]


def test_a_refusal_that_lasts_costs_few_requests_whatever_its_number(server, tmp_path):
    with BucketServer("--objects", "data/:400:100") as some:
        some.scheme = server.scheme
        some.fault("op=get,after=100,do=status:403")
        run = hydrate(some, tmp_path / "out", "--concurrency", "16")
        assert run.returncode in {SOME_FAILED, DENIED} and "CIS1403" in run.stderr, run.stderr
        assert len(contents(tmp_path / "out")) == 100
        assert some.stats()["get"] < 400 + 80 * 6
        some.no_faults()
        assert hydrate(some, tmp_path / "out").returncode == DONE and len(contents(tmp_path / "out")) == 400


# ---- listings --------------------------------------------------------------------------------------------------------


def page(keys, truncated="", head=""):
    contents = "".join(f"<Contents><Key>{k}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;"
                       f"</ETag><Size>0</Size></Contents>" for k in keys)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{truncated}</NextContinuationToken>" if truncated \
        else "<IsTruncated>false</IsTruncated>"
    return f'<?xml version="1.0"?>{head}<ListBucketResult>{more}{contents}</ListBucketResult>'


LAUGHS = '<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{("&" + a + ";") * 10}">' for a, b in zip("abcdefgh", "bcdefghi")) + "]>"
LISTINGS = [
    ("XML with entities that grow", page(["data/&i;"], head=LAUGHS)),
    ("XML with an entity from outside", page(["data/&x;"], head='<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]>')),
    ("XML nested deeply", "<ListBucketResult>" + "<a>" * 300_000),
    ("XML with huge numbers", page(["data/a"]).replace("<Size>0<", f"<Size>{'9' * 400}<")),
    ("XML with a negative size", page(["data/a"]).replace("<Size>0<", "<Size>-1<")),
    ("XML with the largest number", page(["data/a"]).replace("<Size>0<", f"<Size>{2**64 - 1}<")),
    ("XML with sizes that add up to nothing", page(["data/a", "data/b"]).replace("<Size>0<", f"<Size>{2**63}<")),
    ("a megabyte of garbage", random.Random(1).randbytes(1 << 20).decode("latin-1")),
    ("an empty answer", ""),
    ("keys of another prefix", page(["other/a"])),
    ("a token and no key, for ever", page([], "again")),
]


JSON_LISTINGS = [
    ("JSON with huge numbers", '{"items":[{"name":"data/a","size":' + "9" * 400 + "}]}"),
    ("JSON nested deeply", "[" * 300_000),
    ("JSON with a huge generation", '{"items":[{"name":"data/a","size":"1","generation":"' + "9" * 400 + '"}]}'),
    ("JSON with a negative size", '{"items":[{"name":"data/a","size":"-1","generation":"1"}]}'),
    ("JSON with a token and no key, for ever", '{"nextPageToken":"again"}'),
    ("a megabyte of garbage for JSON", LISTINGS[7][1]),
    ("an empty answer for JSON", ""),
]


@pytest.mark.parametrize("running, text", [*(("s3", text) for _, text in LISTINGS), *(("gs", text) for _, text in JSON_LISTINGS)],
                         ids=[name for name, _ in LISTINGS + JSON_LISTINGS], indirect=["running"])
def test_invalid_listing_is_an_error(server, tmp_path, text):
    (tmp_path / "page").write_text(text, encoding="latin-1")
    server.fault(f"op=list,do=body:200:{tmp_path}/page")
    run = hydrate(server, tmp_path / "out", *QUICK)
    ends_in_a_sentence(server, run, tmp_path / "out", {SOME_FAILED, TRANSIENT, NO_SPACE, MISMATCH}, "//bench/")
    assert contents(tmp_path / "out") == {}


@pytest.mark.parametrize("rule", ["op=list,after=1,do=page-loop", "op=list,after=1,do=page-repeat"],
                         ids=["list pages that loop", "list pages that repeat"])
def test_a_listing_that_does_not_advance_is_a_sentence(many, tmp_path, rule):
    many.fault(rule)
    run = hydrate(many, tmp_path / "out", *QUICK)
    assert run.returncode in {SOME_FAILED, TRANSIENT, MISMATCH}
    assert re.search(r"//bench/.*CIS\d{4}", run.stderr), run.stderr
    assert many.stats()["list"] < 50
    for name, content in contents(tmp_path / "out").items():
        assert content == many.content("data/" + name)
    many.no_faults()
    assert hydrate(many, tmp_path / "out").returncode == DONE
    assert len(contents(tmp_path / "out")) == 3500


def test_skipping_list_pages_are_accepted_and_the_next_run_fetches_the_rest(many, tmp_path):
    many.fault("op=list,nth=2,do=page-skip")
    run = hydrate(many, tmp_path / "out", *QUICK)
    found = contents(tmp_path / "out")
    assert run.returncode == DONE, run.stderr
    assert 1000 <= len(found) <= 3500 and all(content == many.content("data/" + name) for name, content in found.items())
    many.no_faults()
    assert hydrate(many, tmp_path / "out").returncode == DONE
    assert len(contents(tmp_path / "out")) == 3500


def test_list_pages_that_are_unsorted_bring_the_same_tree(tmp_path):
    keys = [f"data/k{i}" for i in range(50)]
    random.Random(3).shuffle(keys)
    with BucketServer() as server:
        server.scheme = "s3"
        for key in keys:
            server.put(key, key.encode())
        etags = dict(re.findall(r"<Key>(data/k\d+)</Key>.*?<ETag>(.*?)</ETag>",
                                server.ask("/bench?list-type=2&prefix=data/").decode(), re.S))
        text = page(keys)
        for key in keys:
            text = text.replace(f"<Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;"
                                "</ETag><Size>0<", f"<Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                                f"<ETag>{etags[key]}</ETag><Size>{len(key)}<")
        (tmp_path / "page").write_text(text)
        server.fault(f"op=list,do=body:200:{tmp_path}/page")
        run = hydrate(server, tmp_path / "out")
        assert run.returncode == DONE, run.stderr
        assert contents(tmp_path / "out") == {key[5:]: key.encode() for key in keys}


def test_a_listing_that_changes_while_it_is_read_brings_what_was_listed(many, tmp_path):
    many.fault("op=list,do=latency:80", "op=get,every=100,do=latency:1")
    with subprocess.Popen(words(many, tmp_path / "out", "--quiet"), env=clean_environment(**KEYS), stderr=subprocess.PIPE, text=True) as run:
        for i in range(60):
            many.put(f"data/new-{i}", b"new")
        stderr = run.stderr.read()
    assert run.returncode == DONE, stderr
    found = contents(tmp_path / "out")
    assert sum(name.startswith("object-") for name in found) == 3500
    assert all(content == b"new" for name, content in found.items() if name.startswith("new-"))


# ---- who we are, where they are --------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", ["s3"], indirect=True)
def test_expired_credentials_are_fetched_again_during_the_run(server, tmp_path):
    def another_key(_):
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        return 200, {}, json.dumps({"AccessKeyId": f"key-{len(givers.seen)}", "SecretAccessKey": "secret", "Token": "token",
                                    "Expiration": expires}).encode()

    with Answering(another_key) as givers:
        env = clean_environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{givers.url}/", AWS_REGION="us-east-1")
        server.fault("op=get,after=4,times=1,do=error:400:ExpiredToken", f"op=get,key={LARGE},nth=2,do=error:403:ExpiredToken")
        ends_right(server, hydrate(server, tmp_path / "out", env=env), tmp_path / "out")
        assert len(givers.seen) >= 2


def test_an_address_of_many_that_is_dead_is_passed_over(server, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.2 many.test\n127.0.0.1 many.test\n")
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts]
    run = hydrate(server, tmp_path / "out", url=f"http://many.test:{server.port}", before=inside)
    ends_right(server, run, tmp_path / "out")


def test_unknown_certificate_is_refused_and_a_named_one_accepted(tmp_path):
    certificate = tmp_path / "certificate.pem"
    with BucketServer("--objects", "data/:20:50Ki", "--tls", certificate) as secure:
        secure.scheme = "s3"
        refused = hydrate(secure, tmp_path / "out")
        assert refused.returncode == DENIED and re.search("certificate.*CIS1613", refused.stderr), refused.stderr
        taken = hydrate(secure, tmp_path / "out", "--ca-file", certificate)
        assert taken.returncode == DONE, taken.stderr
        assert len(contents(tmp_path / "out")) == 20


def test_a_refused_connection_is_a_sentence(server, tmp_path):
    run = hydrate(server, tmp_path / "out", *QUICK, url="http://127.0.0.1:1")
    ends_in_a_sentence(server, run, tmp_path / "out", {TRANSIENT}, "Connection refused", "CIS1611")


# ---- our own limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [12, 16, 20, 24, 32, 48])
def test_out_of_descriptors(server, tmp_path, count):
    run = hydrate(server, tmp_path / "out", *QUICK, before=["prlimit", f"--nofile={count}:{count}"])
    if run.returncode != DONE:
        assert run.returncode in {SOME_FAILED, TRANSIENT, NO_SPACE, ENVIRONMENT} and "Too many open files" in run.stderr, run.stderr
    ends_right(server, hydrate(server, tmp_path / "out"), tmp_path / "out")


@pytest.mark.parametrize("memory", ["1Mi", "2Mi", "5Mi"])
def test_a_memory_budget_that_is_small_makes_it_wait(server, tmp_path, memory):
    ends_right(server, hydrate(server, tmp_path / "out", "--memory", memory), tmp_path / "out")


def test_one_request_at_a_time_brings_the_same_tree(server, tmp_path):
    ends_right(server, hydrate(server, tmp_path / "out", "--concurrency", "1", "--workers", "1"), tmp_path / "out")


def test_sigterm_ends_it_and_the_same_command_goes_on(server, tmp_path):
    server.fault("op=get,do=stall:0")
    server.forget_stats()
    with subprocess.Popen(words(server, tmp_path / "out"), env=clean_environment(**KEYS), stderr=subprocess.PIPE, text=True) as run:
        while server.stats()["get"] == 0:
            time.sleep(0.005)
        run.send_signal(signal.SIGTERM)
        assert run.wait(20) == INTERRUPTED
        assert "run the same command again to continue" in run.stderr.read()
    server.no_faults()
    ends_right(server, hydrate(server, tmp_path / "out"), tmp_path / "out")


# ---- rows that live elsewhere ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [
    "hydrate/every_request_test.py::test_a_fault_of_any_one_request_is_outlived_or_named",  # each fault, each kind of request
    "cistern/failing_calls_test.py::test_hydrate_survives_the_failure_of_any_one_call",  # ENOSPC, EIO, EDQUOT, EROFS
    "cistern/failing_calls_test.py::test_files_lost_by_a_failed_barrier_are_fetched_again",  # after write-back lost pages
    "export/faults_test.py::test_an_upload_whose_answer_was_lost_meets_its_own_object",  # an upload whose answer is lost
    "hydrate/resume_test.py::test_killed_at_fifty_moments_it_ends_with_the_same_tree",  # SIGKILL
    "power_loss_test.py::test_hydration_after_power_loss_resumes_from_durable_files",  # power loss
    "hydrate/addresses_test.py::test_one_of_three_that_is_dead_is_set_aside",  # DNS that returns many addresses
    "store/faults_test.py::test_a_redirect_to_another_host_of_the_provider_is_followed_with_a_signature_for_it",
    "store/faults_test.py::test_redirect_to_another_host_is_reported_and_not_followed",
    "hydrate/odd_server_test.py::test_replies_that_http_forbids_are_errors_and_write_no_wrong_bytes",  # what HTTP does not allow
    "hydrate/order_test.py::test_a_store_that_asks_for_less_above_a_rate_gets_less",  # 503 above a rate
])
def test_the_rows_that_live_elsewhere_are_there(where):
    file, name = where.split("::")
    assert f"def {name}(" in (HERE.parent / file).read_text()
