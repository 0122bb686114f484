# SPDX-License-Identifier: Apache-2.0
"""One function a gate: given a root and paths below it, the list of complaints, each "path:line: what is wrong"."""
import csv
import io
import re
import subprocess
from pathlib import Path

FILE_LINES = 600
FUNCTION_LINES = 60
COMPLEXITY = 15  # a switch counts once, however many cases it has

# A foreign library belongs to one folder of src/: include prefix -> folders that own it.
OWNERS = {
    "jansson.h": ["util"], "openssl/": ["util"], "isa-l": ["util"],
    "curl/": ["io"], "liburing": ["io"],
    "libxml/": ["store"],
    "grpc/": ["rpc"], "protobuf-c/": ["rpc", "csi"],
    "microhttpd.h": ["http"],
    "fuse": ["fuse"],
}

BIN = {}


def tools(cache, top):
    """Pinned tools from the tests' own Python environment; installs it if it is not there."""
    venv = cache / "python"
    subprocess.run([top / "tests/deps/python.sh"], check=True)
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
    """What a tool complained of in `text`. One that failed and complained of nothing has not looked."""
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


def ids_in_code(text):
    """Ids given to err_advise or mistrust, literally or by choice between literals, and CISnnnn in sentences."""
    ids = [(m.start(), m.group(1)) for m in re.finditer(r"\bCIS(\d{4})\b", text)]
    for m in re.finditer(r"\b(?:err_advise|mistrust)\s*\(\s*[^,;]+,([^,;]+),", text):
        ids += [(m.start(), n) for n in re.findall(r"\b([1-9]\d{3})\b", m.group(1))]
    return ids


def numbers_in_code(root):
    """What may be an id: also one that is handed on, or stands in a table, or in a sentence. Comments give none."""
    numbers = set()
    for p in (p for top in ("src", "cmd") for p in (Path(root) / top).rglob("*.[ch]")):
        text = re.sub(r"/\*.*?\*/", "", p.read_text(errors="replace"), flags=re.S)
        numbers.update(re.findall(r"\bCIS(\d{4})\b", text), re.findall(r"(?<![\w.])(\d{4})(?![\w.])", code_of(text)))
    return numbers


def gate_errors(root, paths):
    page = Path(root) / "docs/errors.md"
    documented = re.findall(r"^### CIS(\d{4})\b", page.read_text(), re.M) if page.is_file() else []
    found = []
    if "docs/errors.md" in paths:
        given = numbers_in_code(root)
        found += [f"docs/errors.md:1: CIS{n} is given nowhere in src or cmd" for n in documented if n not in given]
    if documented != sorted(set(documented)):
        found.append("docs/errors.md:1: ids are listed once each, in ascending order")
    for p in paths:
        if not (is_c(p) and is_ours(p)):
            continue
        text = (Path(root) / p).read_text(errors="replace")
        for at, n in ids_in_code(text):
            if n not in documented and not (p.startswith("src/util/err.") and n == "1403"):
                found.append(f"{p}:{text.count(chr(10), 0, at) + 1}: CIS{n} has no paragraph in docs/errors.md")
    return found


def gate_banned(root, paths):
    """Is each function of banned.h refused by the compiler, and does every file of ours get banned.h?"""
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


def gate_tidy(root, paths):
    """clang-tidy over what the build compiles, by its compile_commands.json; a file outside it is checked alone."""
    top = Path(__file__).resolve().parents[2]
    c = [p for p in paths if p.endswith(".c") and (is_ours(p) or Path(root) != top)]
    build = top / "build"
    if Path(root) == top:
        compiled = (build / "compile_commands.json").read_text()
        c = [p for p in c if f"/{p}" in compiled]
    alone = [] if Path(root) == top else ["--", "-std=gnu17", "-D_GNU_SOURCE"]
    where = ["-p", str(build)] if not alone else []
    r = subprocess.run(["xargs", "-0", "-n", "4", "-P", "2", "nice", BIN["clang-tidy"], "--quiet",
                        f"--config-file={top / '.clang-tidy'}", *where] if not alone else
                       [BIN["clang-tidy"], "--quiet", f"--config-file={top / '.clang-tidy'}", *c, *alone],
                       cwd=root, capture_output=True, text=True, input="\0".join(c) if not alone else None)
    return complaints(r, r.stdout, r"(error|warning):")


ALL = {
    "format": gate_format, "sizes": gate_sizes, "includes": gate_includes, "words": gate_words,
    "errors": gate_errors, "banned": gate_banned, "tidy": gate_tidy,
}
SLOW = {"tidy"}
