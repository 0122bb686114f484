# SPDX-License-Identifier: Apache-2.0
"""A file whose name the store accepts arrives under exactly that name, in both dialects."""

import os
import subprocess

import pytest

from paths import CISTERN
from servers.bucket import KEYS

MIB = 1 << 20
WORDS = ['"quoted"', "back\\slash", '{"name":"x"}', "a%2Fb%", "+ &?#;=", "é-\u202e-\U0001f600", "<a>&amp;]]>", "--cistern-0",
         " ", "end ", "compose", "..."]
LARGE = '"la\\rge&%2F'


@pytest.fixture
def folder(tmp_path):
    src = tmp_path / "src"
    for folder in "words", "bytes":
        (src / folder).mkdir(parents=True)
    for word in WORDS:
        (src / "words" / word).write_text(word)
    for byte in range(1, 128):
        if chr(byte) not in "\n\r/":
            (src / "bytes" / f"b{chr(byte)}e").write_text(f"{byte}")
    (src / LARGE).write_bytes(os.urandom(20 * MIB))
    return tmp_path


def export(bucket, folder, scheme, *flags):
    return subprocess.run([CISTERN, "export", "--endpoint", bucket.url, "--quiet", *(["--anonymous"] if scheme == "gs" else []),
                           *flags, folder / "src", f"{scheme}://bench/p/"], env=os.environ | KEYS, timeout=120,
                          capture_output=True, text=True)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_files_arrive_under_their_very_names_and_are_found_by_them(bucket, folder, scheme):
    bucket.fault("op=post,nth=1,do=lost")
    done = export(bucket, folder, scheme, "--state", folder / "state")
    assert done.returncode == 0, done.stderr
    files = {f"p/{path.relative_to(folder / 'src')}": path.read_bytes() for path in (folder / "src").rglob("*") if path.is_file()}
    assert sorted(bucket.uploads()) == sorted(files)
    assert {key: bucket.content(key) for key in files} == files
    assert b"<Upload>" not in bucket.ask("/bench?uploads&prefix=")
    objects = bucket.ask("/_objects")
    done = export(bucket, folder, scheme, "--state", folder / "other-state")
    assert done.returncode == 0, done.stderr
    assert bucket.ask("/_objects") == objects  # nothing was written again


def test_google_takes_no_line_breaks_and_that_is_said_of_the_file(bucket, folder):
    (folder / "src/two\nlines").write_text("x")
    done = export(bucket, folder, "gs", "--state", folder / "state")
    assert done.returncode == 1 and "two?lines" in done.stderr, done.stderr
    assert len(bucket.uploads()) == len([path for path in (folder / "src").rglob("*") if path.is_file()]) - 1
    assert export(bucket, folder, "s3", "--state", folder / "s3-state", "--conflict", "overwrite").returncode == 0
    assert "p/two\nlines" in bucket.uploads()
