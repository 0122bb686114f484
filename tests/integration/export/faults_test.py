# SPDX-License-Identifier: Apache-2.0
"""`cistern export` against a server that fails on purpose: each run ends with every file confirmed, or with a sentence
that names the file."""

import json
import os
import subprocess
import time

import pytest

from integration.lib.noise import noise
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path):
    src = tmp_path / "src"
    src.mkdir()
    for i in range(20):
        (src / f"small-{i}").write_bytes(noise(i, 1000 * i))
    (src / "large").write_bytes(noise("large", 20 * MIB + 7))
    return tmp_path


def command(bucket, folder, *flags, uri="s3://bench/p/", src="src"):
    return [CISTERN, "export", "--endpoint", bucket.url, "--path-style", "--state", folder / "state", *flags,
            folder / src, uri]


def export(bucket, folder, *flags, **kwargs):
    return subprocess.run(command(bucket, folder, *flags, **kwargs), capture_output=True, text=True, timeout=120,
                          env=os.environ | KEYS)


def verdict(folder):
    return json.loads((folder / "state/export/verdict.json").read_text())


def uploads_begun(bucket):
    return bucket.ask("/bench?uploads&prefix=").count(b"<Upload>")


def assert_whole(bucket, folder):
    for path in (folder / "src").iterdir():
        assert bucket.content(f"p/{path.name}") == path.read_bytes(), path


@pytest.mark.parametrize("rule", [
    "op=put,every=5,do=status:503:0",
    "op=put,every=4,times=6,do=status:500",
    "op=put,every=7,do=reset",
    "op=post,nth=1,do=status:503:0",
    "op=post,nth=2,do=status:500",
], ids=lambda rule: rule.replace(",", " "))
def test_passing_errors_are_outlived(bucket, folder, rule):
    bucket.fault(rule)
    done = export(bucket, folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert verdict(folder)["state"] == "done"
    assert any(bucket.fired())
    bucket.no_faults()
    assert_whole(bucket, folder)


@pytest.mark.parametrize("rule", [
    "op=put,key=p/small-*,every=2,times=8,do=lost",
    "op=put,key=p/large,times=2,do=lost",
    "op=post,nth=2,do=lost",
    "op=post,nth=2,do=garbage-body:300",
], ids=["put", "part", "complete", "garbled"])
def test_an_upload_whose_answer_was_lost_meets_its_own_object(bucket, folder, rule):
    bucket.fault(rule)
    done = export(bucket, folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "CIS4409" not in done.stderr
    assert any(bucket.fired())
    bucket.no_faults()
    assert_whole(bucket, folder)


def test_a_completion_that_takes_long_is_waited_for(bucket, folder):
    bucket.fault("op=post,nth=2,do=slow:60")
    done = export(bucket, folder, "--stall", "3s")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert bucket.stats()["post"] == 2, "it was asked for again"


@pytest.mark.parametrize("nth", [1, 2], ids=["begin", "complete"])
def test_an_upload_whose_answer_never_came_leaves_none_at_the_server(bucket, folder, nth):
    bucket.fault(f"op=post,nth={nth},do=stall")
    assert export(bucket, folder, "--stall", "1s").returncode == 0
    bucket.no_faults()
    assert uploads_begun(bucket) == 0


def test_more_uploads_of_a_key_than_a_list_holds_are_all_swept(bucket, folder):
    bucket.fault("op=post,do=status:503:0")
    assert export(bucket, folder, "--retries", "2").returncode == 1
    bucket.no_faults()
    for i in range(2100):
        bucket.ask(f"/bench/p/large{'' if i < 2050 else '-other'}?uploads", "POST")
    assert export(bucket, folder).returncode == 0
    left = bucket.ask("/bench?uploads&prefix=p/large")
    assert b"<Key>p/large</Key>" not in left and left.count(b"<Upload>") == 50
    assert_whole(bucket, folder)


def test_a_sweep_that_did_not_come_through_is_made_by_the_next_run(bucket, folder):
    bucket.fault("op=post,nth=1,do=lost", "op=list,do=status:503:0")
    assert export(bucket, folder, "--retries", "2").returncode == 0
    assert_whole(bucket, folder)
    assert uploads_begun(bucket) == 1
    bucket.no_faults()
    assert export(bucket, folder).returncode == 0
    assert uploads_begun(bucket) == 0


@pytest.mark.parametrize("refusal", ["op=post,after=1,do=status:403", "op=post,after=1,do=error:400:EntityTooSmall"], ids=["403", "400"])
def test_an_upload_that_is_given_up_takes_the_one_with_it_whose_answer_was_lost(bucket, folder, refusal):
    bucket.fault("op=post,nth=1,do=lost", refusal)
    assert export(bucket, folder).returncode == 1
    bucket.no_faults()
    assert uploads_begun(bucket) == 0


FAULTS = {"lost": "lost", "reset": "reset", "reset halfway": "reset:60", "cut": "truncate:60", "garbled": "garbage-body"}
BEGUN = "<InitiateMultipartUploadResult><Key>p/large</Key>{}</InitiateMultipartUploadResult>"
ANSWERS = {"empty": "", "no id": BEGUN.format(""), "an empty id": BEGUN.format("<UploadId></UploadId>"),
           "an endless id": BEGUN.format(f"<UploadId>{'x' * 4000}</UploadId>"), "another document": "<ListBucketResult/>"}


@pytest.fixture(params=[*FAULTS, *ANSWERS])
def without_id(request, folder):
    """A fault of the reply that begins an upload: its upload ID stays unknown."""
    if request.param in FAULTS:
        return FAULTS[request.param]
    (folder / "answer").write_text(ANSWERS[request.param])
    return f"answer:200:{folder}/answer"


def test_an_upload_whose_id_was_lost_is_begun_again_and_swept_at_the_end(bucket, folder, without_id):
    bucket.fault(f"op=post,nth=1,do={without_id}")
    done = export(bucket, folder)
    assert done.returncode == 0 and bucket.fired() == [1], (done.stdout, done.stderr)
    bucket.no_faults()
    assert uploads_begun(bucket) == 0
    assert_whole(bucket, folder)


def test_upload_whose_id_stays_unknown_fails_by_name_and_is_aborted(bucket, folder, without_id):
    bucket.fault(f"op=post,do={without_id}")
    done = export(bucket, folder, "--retries", "2")
    assert done.returncode == 1 and "large" in done.stderr, (done.stdout, done.stderr)
    bucket.no_faults()
    if without_id.split(":")[0] in ("answer", "garbage-body"):  # the store answers: it is swept at once
        assert uploads_begun(bucket) == 0
    (folder / "src/large").unlink()
    assert export(bucket, folder).returncode == 0
    assert uploads_begun(bucket) == 0


def test_an_upload_that_is_mistrusted_takes_the_one_with_it_whose_id_was_lost(deaf_bucket, folder):
    deaf_bucket.fault("op=post,nth=1,do=lost", "key=p/large,op=put,do=etag", "key=p/large,op=get,do=status:403")
    done = export(deaf_bucket, folder)
    assert done.returncode == 1 and "CIS4011" in done.stderr, (done.stdout, done.stderr)
    assert uploads_begun(deaf_bucket) == 0


@pytest.mark.parametrize("rule", ["op=put,key=p/large,nth=2,do=error:404:NoSuchUpload",
                                  "op=post,nth=2,do=error:404:NoSuchUpload"],
                         ids=["part", "complete"])
def test_upload_aborted_by_another_client_is_restarted(bucket, folder, rule):
    bucket.fault(rule)
    done = export(bucket, folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert bucket.fired() == [1]
    bucket.no_faults()
    assert_whole(bucket, folder)
    assert uploads_begun(bucket) == 0, "it was there all the same"


def test_an_object_of_another_checksum_never_counts_as_exported(bucket, folder):
    bucket.fault("op=put,key=p/small-7,do=checksum", "op=head,key=p/small-7,do=checksum")
    done = export(bucket, folder)
    assert done.returncode == 1 and "CIS4022" in done.stderr and "small-7" in done.stderr
    v = verdict(folder)
    assert v["state"] == "failed" and v["failures"][0]["path"] == "small-7" and v["done"]["files"] == 20


@pytest.mark.parametrize("op, conflict", [("head", "fail"), ("put", "overwrite")])
def test_412_without_a_condition_does_not_count_as_changed_file(unconditional_bucket, folder, op, conflict):
    unconditional_bucket.fault(f"op={op},key=p/small-7,do=status:412")
    done = export(unconditional_bucket, folder, "--conflict", conflict)
    assert done.returncode == 1 and "small-7" in done.stderr, (done.stdout, done.stderr)
    assert "a condition that was not set" in done.stderr, done.stderr
    assert verdict(folder)["done"]["files"] == 20


def test_a_file_that_cannot_be_read_is_named(bucket, folder):
    """One of sysfs gives an error where a broken disk does."""
    done = export(bucket, folder, "--include", "speed", src="/sys/class/net/lo/")
    assert done.returncode != 0 and "cannot read 'speed' at byte 0" in done.stderr, (done.stdout, done.stderr)
    assert verdict(folder)["failures"][0]["path"] == "speed"


def test_a_refused_part_fails_the_file_by_name_and_a_later_run_mends_it(bucket, folder):
    bucket.fault("op=put,key=p/large,do=status:403")
    done = export(bucket, folder)
    assert done.returncode == 1 and "large" in done.stderr, (done.stdout, done.stderr)
    v = verdict(folder)
    assert v["state"] == "failed" and v["failures"][0]["path"] == "large" and v["done"]["files"] == 20
    bucket.no_faults()
    assert export(bucket, folder).returncode == 0
    assert_whole(bucket, folder)


def test_a_server_that_stays_away_is_exit_code_5_and_what_was_sent_stays_sent(bucket, folder):
    bucket.fault("op=put,key=p/large,after=2,do=status:503:0")
    done = export(bucket, folder, "--retries", "3", "--timeout", "5s")
    assert done.returncode in (1, 5) and "large" in done.stderr, (done.returncode, done.stdout, done.stderr)
    bucket.no_faults()
    before = bucket.stats()["put"]
    assert export(bucket, folder).returncode == 0
    assert bucket.stats()["put"] - before <= 3
    assert_whole(bucket, folder)


LATE = {"InternalError": 0, "SlowDown": 0, "NoSuchUpload": 0, "InvalidPart": 0, "EntityTooSmall": 1}


@pytest.mark.parametrize("code", LATE)
def test_a_completion_that_says_200_and_fails_afterwards_has_failed(bucket, folder, tmp_path, code):
    error = tmp_path / "error.xml"
    error.write_text(f"\n \n  <?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>late</Message></Error>")
    bucket.fault(f"op=post,key=p/large,nth=2,do=body:200:{error}")
    done = export(bucket, folder)
    assert done.returncode == LATE[code] and bucket.fired() == [1], (done.stdout, done.stderr)
    if done.returncode == 1:
        assert "large" in done.stderr and code in done.stderr
        assert "p/large" not in bucket.uploads()
        bucket.no_faults()
        assert export(bucket, folder).returncode == 0
    assert_whole(bucket, folder)
    assert uploads_begun(bucket) == 0


def test_an_upload_that_is_gone_and_whose_name_another_has_is_a_conflict_not_a_wrong_size(bucket, folder):
    bucket.fault("op=post,key=p/large,nth=2,do=stall")
    child = subprocess.Popen(command(bucket, folder), env=os.environ | KEYS, stdout=subprocess.DEVNULL)
    wait_for_fault(bucket)
    child.kill()
    child.wait()
    bucket.no_faults()
    bucket.put("p/large", b"theirs")
    done = export(bucket, folder)
    assert done.returncode == 1 and "CIS4409" in done.stderr, (done.stdout, done.stderr)
    assert bucket.content("p/large") == b"theirs"
    assert export(bucket, folder, "--conflict", "overwrite").returncode == 0
    assert_whole(bucket, folder)


def wait_for_fault(bucket):
    deadline = time.monotonic() + 60
    while not any(bucket.fired()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def unconditional_bucket():
    with BucketServer("--unconditional") as running:
        yield running


def test_store_without_conditions_is_checked_by_head_and_that_is_reported(unconditional_bucket, folder):
    bucket = unconditional_bucket
    for name in ("small-7", "large"):
        bucket.put(f"p/{name}", b"theirs")
    done = export(bucket, folder)
    assert done.returncode == 1 and done.stderr.count("CIS4409") == 2, (done.stdout, done.stderr)
    assert bucket.content("p/small-7") == bucket.content("p/large") == b"theirs"
    assert "checked by HEAD only: 19 files;" in done.stdout
    bucket.remove("p/large")
    assert "checked by HEAD only: 1 file;" in export(bucket, folder).stdout
    assert bucket.content("p/large") == (folder / "src/large").read_bytes()
    assert export(bucket, folder, "--conflict", "overwrite").returncode == 0
    assert_whole(bucket, folder)


@pytest.mark.parametrize("rules", [["op=head,key=p/small-7,nth=1,do=stall"], ["op=head,key=p/large,nth=2,do=stall"],
                                   ["op=put,key=p/small-7,nth=1,do=lost", "op=head,key=p/small-7,nth=2,do=stall"]],
                         ids=["put", "complete", "after-a-lost-reply"])
def test_head_within_a_conditional_write_that_hangs_is_sent_again(unconditional_bucket, folder, rules):
    """It waited for the stall timeout, which is longer here than a test may last. With one request at once each uses the
    connection of the one before. libcurl repeated a PUT over another one, if no reply came, without the HEAD before it."""
    unconditional_bucket.fault(*rules)
    done = export(unconditional_bucket, folder, "--stall", "1h", "--concurrency", "1")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert unconditional_bucket.fired() == [1] * len(rules)
    assert_whole(unconditional_bucket, folder)


def test_where_there_is_neither_condition_nor_look_nothing_is_written(unconditional_bucket, folder):
    bucket = unconditional_bucket
    bucket.put("p/small-7", b"theirs")
    bucket.fault("op=head,do=status:403")
    done = export(bucket, folder)
    assert done.returncode != 0 and "CIS1420" in done.stderr and "small-7" in done.stderr, (done.stdout, done.stderr)
    assert bucket.uploads() == ["p/small-7"] and bucket.content("p/small-7") == b"theirs"


@pytest.mark.parametrize("rule", ["op=put,key=p/small-*,every=2,times=8,do=lost", "op=post,key=p/large,nth=2,do=lost"],
                         ids=["put", "complete"])
def test_an_answer_that_is_lost_by_a_store_without_conditions_is_met_again(unconditional_bucket, folder, rule):
    unconditional_bucket.fault(rule)
    done = export(unconditional_bucket, folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    unconditional_bucket.no_faults()
    assert_whole(unconditional_bucket, folder)
    assert uploads_begun(unconditional_bucket) == 0


def test_a_store_that_knows_neither_conditions_nor_checksums_is_asked_without_both(folder):
    with BucketServer("--unconditional", "--old-fashioned", "--checksums", "md5") as bucket:
        done = export(bucket, folder)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert_whole(bucket, folder)


def test_bandwidth_is_kept_to_by_many_small_files(bucket, tmp_path):
    (tmp_path / "src").mkdir()
    for i in range(40):
        (tmp_path / f"src/{i}").write_bytes(os.urandom(100 << 10))
    begin = time.monotonic()
    done = export(bucket, tmp_path, "--bandwidth", "1Mi")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin > 0.95 * 40 * 100 / 1024 - 0.1, "a burst of 0.1 s is free"


def test_bandwidth_is_kept_to(bucket, folder):
    began = time.monotonic()
    done = export(bucket, folder, "--bandwidth", "5Mi")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert time.monotonic() - began > 2.5  # 20.2 MiB; a tenth of a second of it at once, a second may be caught up
    assert_whole(bucket, folder)


def test_a_server_that_heeds_no_condition_overwrites_nothing_all_the_same(folder):
    with BucketServer("--heedless") as bucket:
        for name in ("small-7", "large"):
            bucket.put(f"p/{name}", b"theirs")
        done = export(bucket, folder)
        assert done.returncode == 1 and done.stderr.count("CIS4409") == 2, (done.stdout, done.stderr)
        assert bucket.content("p/small-7") == bucket.content("p/large") == b"theirs"
        assert verdict(folder)["done"]["files"] == 19


@pytest.fixture
def deaf_bucket():
    """A server that knows no checksum but MD5, as its ETags."""
    with BucketServer("--checksums", "md5") as running:
        yield running


@pytest.fixture
def refusing_bucket():
    with BucketServer("--checksums", "md5", "--old-fashioned") as running:
        yield running


@pytest.fixture(params=["deaf", "refusing"])
def md5_bucket(request):
    return request.getfixturevalue(f"{request.param}_bucket")


def test_store_with_md5_only_confirms_by_it(md5_bucket, folder):
    done = export(md5_bucket, folder)
    assert done.returncode == 0 and "confirmed by size and checksum" in done.stdout, (done.stdout, done.stderr)
    assert_whole(md5_bucket, folder)
    before = md5_bucket.stats()["put"]
    assert export(md5_bucket, folder, "--conflict", "overwrite").returncode == 0
    assert md5_bucket.stats()["put"] == before


def test_the_same_bytes_of_another_are_known_by_their_md5(md5_bucket, folder):
    for name in ("small-0", "small-7"):
        md5_bucket.put(f"p/{name}", (folder / "src" / name).read_bytes())
    md5_bucket.put("p/small-8", b"x" * 8000)
    done = export(md5_bucket, folder)
    assert done.returncode == 1 and done.stderr.count("CIS4409") == 1, (done.stdout, done.stderr)
    assert verdict(folder)["failures"][0]["path"] == "small-8" and verdict(folder)["done"]["files"] == 20


@pytest.mark.parametrize("fault", [
    "op=put,key=p/small-*,every=2,times=8,do=lost",
    "op=put,key=p/large,times=2,do=lost",
    "op=post,nth=2,do=lost",
], ids=["put", "part", "complete"])
def test_an_answer_that_is_lost_is_confirmed_by_md5_too(md5_bucket, folder, fault):
    md5_bucket.fault(fault)
    done = export(md5_bucket, folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    md5_bucket.no_faults()
    assert_whole(md5_bucket, folder)


ETAGS = pytest.mark.parametrize("name, fault", [
    ("small-7", "key=p/small-7,op=put,do=etag"),
    ("large", "key=p/large,op=put,nth=2,do=etag"),
    ("large", "key=p/large,op=put,do=etag"),
], ids=["of a file", "of a part", "of all parts"])


@ETAGS
def test_an_object_whose_etag_is_not_the_md5_is_read_back(deaf_bucket, folder, name, fault):
    deaf_bucket.fault(fault, f"key=p/{name},op=head,do=etag", f"key=p/{name},op=get,do=etag")
    done = export(deaf_bucket, folder)
    assert done.returncode == 1 and done.stderr.count("CIS4011") == 1, (done.stdout, done.stderr)  # no GET fits its ETag
    deaf_bucket.no_faults()
    deaf_bucket.remove(f"p/{name}")
    deaf_bucket.fault(fault)
    assert export(deaf_bucket, folder).returncode == 0
    assert_whole(deaf_bucket, folder)


@ETAGS
def test_object_that_can_be_neither_compared_nor_read_back_fails(deaf_bucket, folder, name, fault):
    deaf_bucket.fault(fault, f"key=p/{name},op=head,do=etag", f"key=p/{name},op=get,do=status:403")
    done = export(deaf_bucket, folder)
    assert done.returncode == 1 and done.stderr.count("CIS4011") == 1, (done.stdout, done.stderr)
    assert verdict(folder)["failures"][0]["path"] == name and verdict(folder)["done"]["files"] == 20
    deaf_bucket.no_faults()
    assert export(deaf_bucket, folder).returncode == 0  # it meets its own object
    assert_whole(deaf_bucket, folder)


def test_the_last_etag_decides_where_the_md5s_of_the_parts_were_sent(refusing_bucket, folder):
    refusing_bucket.fault("key=p/large,op=put,do=etag", "key=p/small-7,do=etag")
    done = export(refusing_bucket, folder)
    assert done.returncode == 1 and done.stderr.count("CIS4011") == 1, (done.stdout, done.stderr)
    assert verdict(folder)["failures"][0]["path"] == "small-7"


def noted(folder, kind):
    return sum(book.read_text().count(f" {kind} ") for book in (folder / "state").glob("export/logbook-*"))


def test_parts_that_an_md5_confirmed_are_not_sent_again_after_a_kill(md5_bucket, folder):
    (folder / "src/large").write_bytes(noise("larger", 48 * MIB))
    md5_bucket.fault("op=put,key=p/large,after=3,do=stall")
    child = subprocess.Popen(command(md5_bucket, folder), env=os.environ | KEYS)
    deadline = time.monotonic() + 60
    while noted(folder, "P") < 3 or noted(folder, "S") < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.kill()
    child.wait()
    md5_bucket.no_faults()
    before = md5_bucket.stats()["put"]
    done = export(md5_bucket, folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert md5_bucket.stats()["put"] - before == 6 - 3
    assert_whole(md5_bucket, folder)


@pytest.mark.parametrize("name", ["small-7", "large"])
def test_an_object_of_the_same_size_and_one_other_bit_is_a_conflict_and_one_of_the_same_bytes_is_there(bucket, folder, name):
    ours = (folder / "src" / name).read_bytes()
    theirs = ours[:-1] + bytes([ours[-1] ^ 1])
    bucket.put(f"p/{name}", theirs)
    done = export(bucket, folder)
    assert done.returncode == 1 and "CIS4409" in done.stderr and name in done.stderr, (done.stdout, done.stderr)
    assert bucket.content(f"p/{name}") == theirs and verdict(folder)["done"]["files"] == 20
    bucket.put(f"p/{name}", ours)
    assert export(bucket, folder).returncode == 0
    assert verdict(folder)["done"]["files"] == 21


def test_write_permission_alone_suffices_for_an_export(bucket, folder):
    """No HEAD, no list, no abort; and an upload is left by a run that never learnt its id."""
    bucket.fault("op=post,do=status:503:0")
    assert export(bucket, folder, "--retries", "2").returncode == 1
    bucket.no_faults()
    bucket.fault(*(f"op={op},do=status:403" for op in ("head", "list", "delete")))
    done = export(bucket, folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    bucket.no_faults()
    assert_whole(bucket, folder)


def export_to_google(bucket, folder, *flags):
    return export(bucket, folder, "--anonymous", *flags, uri="gs://bench/p/")


@pytest.mark.parametrize("fault", ["lost", "reset:60", "truncate:60", "garbage-body", "answer:200:/dev/null"])
@pytest.mark.parametrize("rule", ["op=post,every=4,times=8", "op=post,key=p/large/compose,times=1", "op=head,key=p/large,nth=2"],
                         ids=["each fourth", "the last composition", "the look before"])
def test_gcs_unparsable_reply_counts_as_lost(bucket, folder, rule, fault):
    bucket.fault(f"{rule},do={fault}")
    done = export_to_google(bucket, folder)
    assert done.returncode == 0 and sum(bucket.fired()) > 0, (done.stdout, done.stderr)
    bucket.no_faults()
    assert sorted(bucket.uploads()) == sorted(f"p/{path.name}" for path in (folder / "src").iterdir())
    assert_whole(bucket, folder)


def test_lost_reply_and_unparsable_head_cause_no_conflict(bucket, folder):
    bucket.fault("op=post,key=p/large/compose,times=1,do=lost", "op=head,key=p/large,nth=3,do=garbage-body")
    done = export_to_google(bucket, folder)
    assert done.returncode == 0 and bucket.fired() == [1, 1], (done.stdout, done.stderr)
    assert len(bucket.uploads()) == 21


def test_unparsable_compose_replies_fail_the_file_by_name_and_leave_no_parts(bucket, folder):
    bucket.fault("op=post,key=.cistern*/compose,do=garbage-body")
    done = export_to_google(bucket, folder)
    assert done.returncode == 1 and "p/large" in done.stderr, (done.stdout, done.stderr)
    bucket.no_faults()
    assert not [key for key in bucket.uploads() if not key.startswith("p/")]
    assert export_to_google(bucket, folder).returncode == 0
    assert_whole(bucket, folder)


@pytest.fixture
def checkpoints(bucket, folder):
    """Two, in the bucket with their markers; then a file of the first is another."""
    for step in ("step-1", "step-2"):
        (folder / "src" / step).mkdir()
        for name in "abc":
            (folder / "src" / step / name).write_bytes(name.encode() * 1000)
    (folder / "src/step-2/DONE").write_bytes(b"the user's own")
    export_checkpoints(bucket, folder, 0)
    (folder / "src/step-1/b").write_bytes(b"B" * 500)
    (folder / "src/step-2/b").write_bytes(b"B" * 500)
    return folder


def export_checkpoints(bucket, folder, code):
    done = export(bucket, folder, "--conflict", "overwrite", "--marker", "DONE", "--retries", "2")
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


MARKERS = {"p/step-1/DONE", "p/step-2/DONE"}


def test_an_old_marker_is_gone_before_its_checkpoint_is_replaced(bucket, checkpoints):
    bucket.fault("op=put,key=p/step-*,do=status:503:0")
    export_checkpoints(bucket, checkpoints, 1)
    assert not set(bucket.uploads()) & MARKERS
    bucket.no_faults()
    export_checkpoints(bucket, checkpoints, 0)
    assert set(bucket.uploads()) >= MARKERS and bucket.content("p/step-1/b") == b"B" * 500
    before = bucket.stats()["requests"]
    export_checkpoints(bucket, checkpoints, 0)
    assert bucket.stats()["requests"] == before


def test_a_marker_that_was_withdrawn_comes_back_though_nothing_else_is_left_to_send(bucket, checkpoints):
    bucket.fault("op=put,key=p/step-*/DONE,do=status:503:0")
    export_checkpoints(bucket, checkpoints, 1)
    assert not set(bucket.uploads()) & MARKERS and bucket.content("p/step-1/b") == b"B" * 500
    bucket.no_faults()
    export_checkpoints(bucket, checkpoints, 0)
    assert set(bucket.uploads()) >= MARKERS


def test_a_checkpoint_whose_marker_cannot_be_withdrawn_stays_as_it_is(bucket, checkpoints):
    bucket.fault("op=delete,key=p/step-1/*,do=status:403")
    assert "CIS4014" in export_checkpoints(bucket, checkpoints, 1).stderr
    assert set(bucket.uploads()) >= MARKERS and bucket.content("p/step-1/b") == b"b" * 1000
    assert bucket.content("p/step-2/b") == b"B" * 500
    assert [f["path"] for f in verdict(checkpoints)["failures"]] == ["step-1/b", "step-1/DONE"]
