# SPDX-License-Identifier: Apache-2.0
"""The man pages and completions that the build makes from --help."""
import os
import pty
import re
import select
import subprocess
import time

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


LINES = [("cistern hyd", "hydrate"), ("cistern hydrate --skip-m", "--skip-missing"), ("cisternd --forget-p", "--forget-pool"),
         ("cistern ls --endpo", "--endpoint"), ("cistern export --mark", "--marker")]


@pytest.mark.parametrize(("line", "word"), LINES)
def test_bash_completes(line, word):
    words = line.split()
    script = f"source {MANUAL}/bash/cistern; COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}; _cistern; echo ${{COMPREPLY[*]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == [word]


def fish(config, line):
    """{completion: description} of a shell that finds the completions in its directory of them."""
    (config / "fish").mkdir()
    (config / "fish/completions").symlink_to(MANUAL / "fish")
    env = os.environ | {"HOME": str(config), "XDG_CONFIG_HOME": str(config), "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["fish", "-c", f"complete --do-complete '{line}'"], capture_output=True, text=True, timeout=30, check=True,
                          env=env)
    return dict(row.partition("\t")[::2] for row in done.stdout.splitlines())


@pytest.mark.parametrize(("line", "word"), LINES)
def test_fish_completes(tmp_path, line, word):
    assert list(fish(tmp_path, line)) == [word]


def test_fish_describes_each_verb_by_its_help(tmp_path):
    text = subprocess.run([BUILD / "bin/cistern", "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    verbs = dict(re.findall(r"(?m)^  ([a-z]+) {2,}(.*)$", text.split("Verbs:")[1].split("\n\n")[0]))
    assert verbs and verbs == fish(tmp_path, "cistern ")


@pytest.mark.parametrize(("line", "word"), LINES)
def test_zsh_completes(tmp_path, line, word):
    """In an interactive shell: TAB completes the word before the cursor."""
    shell, terminal = pty.openpty()
    env = os.environ | {"HOME": str(tmp_path), "TERM": "vt100", "PS1": "ready> "}
    with subprocess.Popen(["zsh", "-f", "-i"], stdin=terminal, stdout=terminal, stderr=terminal, env=env, start_new_session=True) as run:
        os.close(terminal)
        try:
            os.write(shell, f"fpath=({MANUAL}/zsh $fpath); autoload -U compinit; compinit -u -D; echo load''ed\n".encode())
            read_until(shell, b"loaded")
            os.write(shell, f"{line}\t".encode())
            read_until(shell, word.removeprefix(line.split()[-1]).encode())
        finally:
            run.kill()
            os.close(shell)


def read_until(descriptor, wanted):
    said, deadline = b"", time.monotonic() + 20
    while wanted not in said:
        ready = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))[0]
        assert ready, said
        said += os.read(descriptor, 65536)
