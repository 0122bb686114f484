# SPDX-License-Identifier: Apache-2.0
"""The man pages and completions that the build makes from --help."""
import re
import subprocess

import pytest

from paths import BUILD

MANUAL = BUILD / "manual"
OWNERS = ["cistern", "cisternd", "cistern-keeper",
          *(f"cistern {verb}" for verb in ("hydrate", "export", "ls", "doctor", "status", "mount", "demo"))]


def flags_of(owner):
    program, *verb = owner.split()
    text = subprocess.run([BUILD / "bin" / program, *verb, "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    flags = re.findall(r"(?m)^ +(?:-\w, )?--([a-z-]+)", text)
    assert flags
    return flags


@pytest.mark.parametrize("owner", OWNERS)
def test_manual_has_every_flag_of_help(owner):
    program = owner.split()[0]
    page = (MANUAL / ("man1" if program == "cistern" else "man8") / f"{program}.{1 if program == 'cistern' else 8}").read_text()
    bash, zsh = ((MANUAL / path).read_text() for path in ("bash/cistern", "zsh/_cistern"))
    fish = (MANUAL / "fish/cistern.fish").read_text()
    for flag in flags_of(owner):
        assert f"--{flag}".replace("-", r"\-") in page
        assert f"--{flag}" in bash
        assert f"--{flag}" in zsh
        assert f" -l {flag} " in fish


@pytest.mark.parametrize(("line", "word"), [("cistern hyd", "hydrate"), ("cistern hydrate --skip-m", "--skip-missing"),
                                            ("cisternd --forget-p", "--forget-pool")])
def test_bash_completes(line, word):
    words = line.split()
    script = f"source {MANUAL}/bash/cistern; COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}; _cistern; echo ${{COMPREPLY[*]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == [word]
