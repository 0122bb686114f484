# SPDX-License-Identifier: Apache-2.0
"""One function a gate: given a root and paths below it, the list of complaints, each "path:line: what is wrong"."""
import csv
import functools
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import language
import pages

FILE_LINES = 600
FUNCTION_LINES = 60
COMPLEXITY = 15  # a switch counts once, however many cases it has
TIDY_KEPT = 30 * 24 * 3600  # seconds that clang-tidy's approval of a file is kept unused

# A foreign library belongs to one room of src/: include prefix -> rooms that own it.
OWNERS = {
    "jansson.h": ["util"], "openssl/": ["util"], "isa-l": ["util"],
    "curl/": ["io"], "liburing": ["io"],
    "libxml/": ["creds"],
    "grpc/": ["rpc"], "protobuf-c/": ["rpc", "csi"],
    "microhttpd.h": ["http"],
    "fuse": ["fuse"],
}

BIN = {}


def tools(cache, top):
    """Pinned tools from the tests' own Python environment, and shellcheck; installs both if they are not there."""
    venv = cache / "python"
    subprocess.run([top / "tests/deps/python.sh"], check=True)
    subprocess.run([top / "tests/deps/shellcheck.sh"], check=True)
    BIN.update({n: venv / "bin" / n for n in ("clang-format", "clang-tidy", "lizard")})


def is_c(path):
    return path.endswith((".c", ".h"))


def is_ours(path):
    return path.startswith(("src/", "cmd/"))


def lines_of(root, path):
    return (Path(root) / path).read_text(errors="replace").splitlines()


def code_of(text):
    """The text with comments and the insides of strings blanked, so that words in them do not count."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def complaints(run, text, pattern):
    """The complaints in the output of a tool. A tool that failed without a complaint has checked nothing."""
    found = [line for line in text.splitlines() if re.search(pattern, line)]
    return found or ([f"'{run.args[0]}' ended with {run.returncode}: {run.stderr[-1000:]}"] if run.returncode else [])


def gate_format(root, paths):
    c = [p for p in paths if is_c(p)]
    if not c:
        return []
    style = Path(__file__).resolve().parents[2] / ".clang-format"
    r = subprocess.run([BIN["clang-format"], f"--style=file:{style}", "--dry-run", "--ferror-limit=1", "-Werror", *c], cwd=root,
                       capture_output=True, text=True)
    found = complaints(r, r.stderr, r"error:")
    for p in c:  # what clang-format makes of a comment that is one word too long
        found += [f"{p}:{n}: a comment's end stands alone on its line" for n, line in enumerate(lines_of(root, p), 1)
                  if line.strip() == "*/"]
    return found


def fix_format(root, paths):
    subprocess.run([BIN["clang-format"], "-i", *[p for p in paths if is_c(p)]], cwd=root, check=True)


def fix_errors(root):
    """Puts the paragraphs of docs/errors.md in order."""
    page = Path(root) / "docs/errors.md"
    head, *parts = re.split(r"(?m)^(?=### CIS)", page.read_text())
    by_id = {part[7:11]: part.rstrip() for part in parts}
    page.write_text("\n\n".join([head.rstrip(), *(by_id[n] for n in sorted(by_id))]) + "\n")


def gate_sizes(root, paths):
    sized = [p for p in paths if p.endswith((".c", ".h", ".py", ".sh"))]
    found = []
    for p in sized:
        n = len(lines_of(root, p))
        if n > FILE_LINES:
            found.append(f"{p}:{n}: the file has {n} lines, {FILE_LINES} at most")
    c = [p for p in paths if is_c(p)]
    if not c:
        return found
    r = subprocess.run([BIN["lizard"], "--modified", "--csv", *c], cwd=root, capture_output=True, text=True, check=True)
    for row in csv.reader(io.StringIO(r.stdout)):
        complexity, length, path, name, line = int(row[1]), int(row[4]), row[6], row[7], row[9]
        if length > FUNCTION_LINES:
            found.append(f"{path}:{line}: '{name}' has {length} lines, {FUNCTION_LINES} at most")
        if complexity > COMPLEXITY:
            found.append(f"{path}:{line}: '{name}' has a cyclomatic complexity of {complexity}, {COMPLEXITY} at most")
    return found


def gate_includes(root, paths):
    found = []
    for p in filter(is_c, paths):
        folder = p.split("/")[1] if p.startswith("src/") else None
        for n, line in enumerate(lines_of(root, p), 1):
            m = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not m:
                continue
            name = m.group(1)
            if name.startswith("../") or "/../" in name:
                found.append(f"{p}:{n}: an include climbs out of its folder: the floors cannot see it")
            for prefix, owners in OWNERS.items():
                if is_ours(p) and line.strip().endswith(">") and name.startswith(prefix) and folder not in owners:
                    found.append(f"{p}:{n}: <{name}> belongs to src/{' and src/'.join(owners)} alone")
    return found


WORDS = [
    (r"\bgoto\b", "no goto: return early, and let auto_ clean up"),
    (r"\btypedef\s+(struct|union|enum)\b(?!\s+json_t\s+json;)", "no typedef of structs"),
    (r"\bpthread_cancel\s*\(", "no pthread_cancel: stopping is a message"),
    (r"\b(fork|daemon)\s*\(", "no fork: children only by posix_spawn"),
    (r"(?<!\w)#\s*define\s+NDEBUG", "assertions stay in what we ship"),
]
MARKED = (".c", ".h", ".py", ".sh", ".proto", ".cmake", "CMakeLists.txt", "tests/run", "tests/lint/run")


def gate_words(root, paths):
    found = []
    for p in paths:
        if is_c(p) and is_ours(p):
            text = code_of((Path(root) / p).read_text(errors="replace"))
            for pattern, why in WORDS:
                for m in re.finditer(pattern, text):
                    found.append(f"{p}:{text.count(chr(10), 0, m.start()) + 1}: {why}")
        if p.endswith(MARKED) and p != "tests/lint/gates.py":
            lines = lines_of(root, p)
            if lines and not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
                found.append(f"{p}:1: no line with SPDX-License-Identifier: Apache-2.0")
            for n, line in enumerate(lines, 1):
                if re.search(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))", line):
                    found.append(f"{p}:{n}: a TODO names its issue, as in TODO(#12)")
                if re.match(r"(<{7}|>{7})( |$)", line):
                    found.append(f"{p}:{n}: a conflict is not resolved")
    return found


IDS_HEADER = "src/util/err_ids.h"
ID_ROW = r"^ *X\((\d{4}), (\w+), (.*?)\) *\\?$"


# The error is another process's.
OWN_ADVICE = {"src/util/err.h", "src/util/err.c", "src/creds/reply.c", "src/keeper/wire.c", "src/control/release.c",
              "src/driver/release.c"}


def gate_errors(root, paths):
    """Every id of err_ids.h has one paragraph in docs/errors.md. No other source file spells an id as a number, or gives
    one another advice. No program compares one: it compares the code, or the kind that err.c gives the id."""
    rows = re.findall(ID_ROW, (Path(root) / IDS_HEADER).read_text(), re.M) if (Path(root) / IDS_HEADER).is_file() else []
    page = Path(root) / "docs/errors.md"
    documented = re.findall(r"^### CIS(\d{4})\b", page.read_text(), re.M) if page.is_file() else []
    found = []
    if "docs/errors.md" in paths:
        found += [f"docs/errors.md:1: CIS{n} is not in {IDS_HEADER}" for n in documented if n not in {r[0] for r in rows}]
        if documented != sorted(set(documented)):
            found.append("docs/errors.md:1: ids are listed once each, in ascending order")
    if IDS_HEADER in paths:
        numbers = [r[0] for r in rows]
        if numbers != sorted(set(numbers)):
            found.append(f"{IDS_HEADER}:1: ids are listed once each, in ascending order")
        found += [f"{IDS_HEADER}:1: CIS{n} has no paragraph in docs/errors.md" for n in numbers if n not in documented]
    for p in paths:
        if not (is_c(p) and is_ours(p)) or p == IDS_HEADER:
            continue
        text = (Path(root) / p).read_text(errors="replace")
        for m in re.finditer(r"\bCIS\d{4}\b|\berr_advise\w*\s*\(\s*[^,;]+,[^,;]*\b[1-9]\d{3}\b", text):
            found.append(f"{p}:{text.count(chr(10), 0, m.start()) + 1}: an id is written CIS_NAME, as {IDS_HEADER} has it")
        for m in re.finditer(r"\berr_advise_text\(", text if p not in OWN_ADVICE else ""):
            found.append(f"{p}:{text.count(chr(10), 0, m.start()) + 1}: an id has one advice, that of {IDS_HEADER}")
        for m in re.finditer(r"[!=]= *CIS_[A-Z]|\bcase CIS_[A-Z]", text):
            found.append(f"{p}:{text.count(chr(10), 0, m.start()) + 1}: code compares a code or a kind, never an id")
    return found


TAG = re.compile(r"^[ \t]*(?:static |typedef |extern )?(?:const )?(?:struct|enum|union) (\w+)\s*\{", re.M)
FUNCTION = re.compile(r"^(static (inline )?)?(?!return\b|else\b|typedef\b)[a-z_][\w \*]*?\b(\w+)\([^;{}]*\)\s*\n\{", re.M)


def gate_names(root, paths):
    """One tag has one definition, and a static function never has the name of another file's global function. An inline
    function of a header counts as global, because other files see it."""
    tags, statics, inlines, globals_ = {}, [], {}, {}
    for p in sorted(p for p in paths if is_c(p) and is_ours(p)):
        text = code_of((Path(root) / p).read_text(errors="replace"))
        for m in TAG.finditer(text):
            tags.setdefault(m.group(1), []).append(f"{p}:{text.count(chr(10), 0, m.start(1)) + 1}")
        for m in FUNCTION.finditer(text):
            is_static, is_inline, name = m.groups()
            is_shared = is_inline and p.endswith(".h")
            if is_static:
                statics.append((name, p, is_shared, f"{p}:{text.count(chr(10), 0, m.start(3)) + 1}"))
            if is_shared:
                inlines[name] = p
            elif not is_static and name != "main":
                globals_[name] = p
    globals_ = inlines | globals_
    found = [f"{again}: tag '{tag}' is defined in {places[0]} too: prefix it with its room"
             for tag, places in tags.items() for again in places[1:]]
    for name, p, is_shared, place in statics:
        # The inline function itself, or the header's #else
        is_same = is_shared and Path(p).parent == Path(globals_[name]).parent
        if name in globals_ and not is_same:
            found.append(f"{place}: static function '{name}' has the name of a global function of {globals_[name]}")
    return found


def gate_banned(root, paths):
    """Is each function of banned.h refused by the compiler, and is banned.h put before every file?"""
    top = Path(__file__).resolve().parents[2]
    header = top / "src/util/banned.h"
    found = []
    for p in paths:
        if p == "CMakeLists.txt" and "-include ${CMAKE_SOURCE_DIR}/src/util/banned.h" not in \
                (Path(root) / p).read_text():
            found.append(f"{p}:1: banned.h is not put before every file")
        if is_c(p) and not str(root).startswith(str(top / "tests/lint")):
            continue
        if is_c(p):
            r = subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-fsyntax-only", "-include", header, p], cwd=root,
                               capture_output=True, text=True)
            names = re.findall(r"^#define (?!BANNED)(\w+)\(", header.read_text(), re.M)
            if all(f"{name}_is_banned" in r.stderr for name in names):
                found.append(f"{p}:1: refused, as it must be")
    return found


def tidy_key(entry, config, version):
    """A name for all that clang-tidy sees of a compilation: the text with its headers and comments, and the settings. The
    place of the tree does not count."""
    words = [w for w in shlex.split(entry["command"]) if not w.endswith("/ccache")]
    output = words.index("-o")
    r = subprocess.run([*words[:output], *words[output + 2:], "-E", "-C", "-P"], cwd=entry["directory"], capture_output=True)
    if r.returncode:
        return None
    top = str(Path(entry["directory"]).parent)
    seen = "\0".join([version, config, *words]).encode() + r.stdout
    return hashlib.sha256(seen.replace(top.encode(), b"")).hexdigest()


def tidy_file(entry, config, version, passed):
    """The complaints of clang-tidy about a file of compile_commands.json; none at once if it passed before as it is."""
    key = tidy_key(entry, config.read_text(), version)
    if key and (passed / key).exists():
        (passed / key).touch()
        return []
    r = subprocess.run(["nice", BIN["clang-tidy"], "--quiet", f"--config-file={config}", "-p", entry["directory"], entry["file"]],
                       capture_output=True, text=True)
    found = complaints(r, r.stdout, r"(error|warning):")
    if key and not found:
        (passed / key).touch()
    return found


def gate_tidy(root, paths):
    """clang-tidy over the files in compile_commands.json, in the tree; elsewhere a file is checked alone. Each file takes
    seconds, so a pass is recorded."""
    top = Path(__file__).resolve().parents[2]
    config = top / ".clang-tidy"
    if Path(root) != top:
        c = [p for p in paths if p.endswith(".c")]
        r = subprocess.run([BIN["clang-tidy"], "--quiet", f"--config-file={config}", *c, "--", "-std=gnu17", "-D_GNU_SOURCE"],
                           cwd=root, capture_output=True, text=True)
        return complaints(r, r.stdout, r"(error|warning):")
    ours = {str(top / p) for p in paths if p.endswith(".c") and is_ours(p)}
    entries = [e for e in json.loads((top / "build/compile_commands.json").read_text()) if e["file"] in ours]
    version = subprocess.run([BIN["clang-tidy"], "--version"], check=True, capture_output=True, text=True).stdout
    passed = BIN["clang-tidy"].parents[2] / "clang-tidy-passed"
    passed.mkdir(exist_ok=True)
    for old in passed.iterdir():
        if old.stat().st_mtime < time.time() - TIDY_KEPT:
            old.unlink()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [line for found in pool.map(lambda e: tidy_file(e, config, version, passed), entries) for line in found]


def gate_architecture(root, paths):
    """docs/architecture.md has the rooms of CMakeLists.txt with the rooms that each uses, and names only paths that exist."""
    root = Path(root)
    found = []
    page = "docs/architecture.md"
    if not {"CMakeLists.txt", page} & set(paths):
        return found
    rows = {}
    for n, line in enumerate(lines_of(root, page), 1):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 6 and re.fullmatch(r"`\w+`", cells[1]):  # room, task, uses, owns
            rows[cells[1].strip("`")] = sorted(re.findall(r"`(\w+)`", cells[3]))
        found += [f"{page}:{n}: no path '{path}'" for path in re.findall(r"`((?:src|cmd|tests|charts|deploy|proto)/[\w./-]+)`", line)
                  if not (root / path).exists()]
    rooms = re.findall(r"(?ms)^room\((\w+)\n(.*?)\)$", (root / "CMakeLists.txt").read_text())
    for name, body in rooms:
        uses = sorted(" ".join(re.findall(r"\bUSES ([a-z_ ]+)", body)).split())
        if rows.pop(name, None) != uses:
            found.append(f"{page}:1: room '{name}' uses {', '.join(uses) or 'no room'}, as CMakeLists.txt has it")
    return found + [f"{page}:1: CMakeLists.txt has no room '{name}'" for name in rows]


@functools.cache
def anchors(page):
    """The anchors that a forge gives the headings of a page."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```", "", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"(?m)^#+ (.*)$", text)}


LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
NAMED_PAGE = re.compile(r"\b(docs/[\w/.-]+\.md)(?:#([\w-]+))?")
NAMED_FILE = re.compile(r"(?<![\w./-])((?:src|cmd|tests|charts|deploy)/[\w./-]*\w\.(?:c|h|py|sh|yaml|def))(?![\w.*])")


def header_names(root, p):
    """A header says its own name first, and its comments name only headers and sources that exist."""
    text = (root / p).read_text()
    first = re.match(r"/\* SPDX[^\n]*\n/\* ([\w.]+) - ", text)
    if p.endswith(".h") and (not first or first[1] != Path(p).name):
        yield f"{p}:2: the first comment begins '{Path(p).name} - '"
    for comment in re.finditer(r"/\*.*?\*/", text, re.S):
        for m in re.finditer(r"(?<![\w./<-])(?:\w+/)*\w+\.[ch]\b", comment[0]):
            if not any((top / m[0]).exists() for top in (root, root / "src", (root / p).parent)):
                yield f"{p}:{text.count(chr(10), 0, comment.start() + m.start()) + 1}: no file '{m[0]}'"


def gate_links(root, paths):
    """Links between pages lead to files and headings. So do the files and pages that any file names."""
    root = Path(root)
    found = []
    for p in paths:
        if p.startswith(("tests/fuzz/corpus/", "tests/lint/gates.py")):
            continue
        if is_c(p) and is_ours(p):
            found += header_names(root, p)
        for n, line in enumerate(lines_of(root, p), 1):
            found += [f"{p}:{n}: no file '{m[1]}'" for m in NAMED_FILE.finditer(line)
                      if not (root / m[1]).exists() and not (root / p).parent.joinpath(m[1]).exists()]
            links = [(root / p if not link else (root / p).parent / link, anchor, m) for m in LINK.finditer(line)
                     for link, anchor in [m.groups()]] if p.endswith(".md") else []
            links += [(root / m[1], m[2], m) for m in NAMED_PAGE.finditer(line) if "../" + m[1] not in line]
            for target, anchor, m in links:
                if not target.exists():
                    found.append(f"{p}:{n}: no file '{m[0]}'")
                elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                    found.append(f"{p}:{n}: no heading '{m[0]}'")
    return found


SHELL = re.compile(rb"#!.*\b(ba)?sh\b")


def gate_shell(root, paths):
    """shellcheck over every script, whatever its name. Sourced files are scripts of their own."""
    scripts = [p for p in paths if SHELL.match((Path(root) / p).read_bytes()[:64])]
    if not scripts:
        return []
    r = subprocess.run(["shellcheck", "--format=gcc", "--exclude=SC1091", *scripts], cwd=root, capture_output=True, text=True)
    return complaints(r, r.stdout, r"(error|warning|note):")


ALL = {
    "format": gate_format, "sizes": gate_sizes, "includes": gate_includes, "words": gate_words,
    "errors": gate_errors, "names": gate_names, "language": language.gate_language,
    "architecture": gate_architecture, "links": gate_links, "pages": pages.gate_pages, "shell": gate_shell,
    "banned": gate_banned, "tidy": gate_tidy,
}
SLOW = {"tidy"}
