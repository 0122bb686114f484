# SPDX-License-Identifier: Apache-2.0
"""The language gate: extracts the prose of a file (comments, user-visible strings, documentation) and checks its words,
the length of its sentences and the length of its paragraphs. The rules are in style/, the reasons in docs/writing.md."""
import ast
import io
import re
import tokenize
from pathlib import Path

STYLE = Path(__file__).resolve().parent / "style"
SENTENCE_WORDS = 25
PARAGRAPH_WORDS = 80
# Text that tests hand to a program, or that another project wrote, is not ours to rewrite.
NOT_PROSE = ("LICENSE", "proto/", "tests/fuzz/corpus/", "tests/lint/style/", "tests/lint/language", "tests/lint/bad/",
             "deploy/kubernetes/", "tests/deps/")

# A conversion of printf, a URI, a path, an option or a name with an underscore counts as one plain word.
CODE = re.compile(r"%[-#0 +]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[diouxXcspfgGeEn]|\w+://\S+|`[^`]*`|<[^<>\s][^<>]*>"
                  r"|[\w.*-]*/[\w./*-]+|\w*_\w+(?:\(\))?|\w+\(\)|--?[a-z][\w-]*|\w+->\w+|\{\{.*?\}\}|'[^' ]*'")


def c_prose(text):
    """(line, kind, prose) of every comment, every string that reads as prose and every name of a test."""
    token = re.compile(r'/\*.*?\*/|(?:[ \t]*//[^\n]*(?:\n|$))+|"(?:\\.|[^"\\\n])*"(?:(?:\s|\\\n|[A-Z][A-Z0-9_]+)*"(?:\\.|[^"\\\n])*")*'
                       r"|'(?:\\.|[^'\\\n])*'|\bstatic void ([a-z]\w+)\(void \*\*", re.S)
    for m in token.finditer(text):
        line, raw = text.count("\n", 0, m.start()) + 1, m.group()
        if raw.startswith("/*"):
            kind = "name" if raw.startswith("/* --") else "comment"
            yield line, kind, re.sub(r"\n[ \t]*\*? ?", "\n", raw[2:-2]).strip(" *-")
        elif raw.lstrip().startswith("//"):
            yield line, "comment", re.sub(r"(?m)^[ \t]*// ?", "", raw)
        elif raw.startswith('"'):
            before = text[text.rfind("\n", 0, m.start()) + 1:m.start()]
            if not re.match(r"\s*#\s*include", before):
                joined = re.sub(r'"((?:\s|\\\n|[A-Z][A-Z0-9_]+)*)"', lambda j: " x " if re.search(r"[A-Z]", j[1]) else "", raw[1:-1])
                yield line, "string", joined.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
        elif m.group(1):
            yield line, "name", m.group(1).replace("_", " ")


def python_prose(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            if doc := ast.get_docstring(node):
                yield node.body[0].lineno, "comment", doc
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.lineno, "name", node.name[5:].replace("_", " ")
    comments = [(t.start[0], t.string, bool(t.line[:t.start[1]].strip())) for t in tokenize.generate_tokens(io.StringIO(text).readline)
                if t.type == tokenize.COMMENT and not t.string.startswith("#!")]
    yield from joined_comments(comments)


def joined_comments(comments):
    """Comments on lines that follow each other are one text, but those behind code, which are (line, text, True)."""
    start, block, behind = 0, [], False
    for line, raw, is_behind in [*comments, (1 << 30, "#", True)]:
        if block and (line != start + len(block) or behind or is_behind):
            yield start, "comment", "\n".join(block)
            block = []
        if not block:
            start = line
        behind = is_behind
        block.append(re.sub(r"^#+ ?(-- ?)?", "", raw))


def hash_prose(text):
    comments = [(n, m.group(2), bool(m.group(1).strip())) for n, row in enumerate(text.splitlines(), 1)
                if (m := re.match(r"(.*?\s|\s*)(#\s.*)$", row)) and not row.startswith("#!")]
    yield from joined_comments(comments)


def yaml_prose(text):
    """Comments, and the values that a user reads."""
    yield from hash_prose(text)
    key = re.compile(r"^( *)(?:- )?(?:[\w.]+: *\{.*?)?\"?(?:description|message|summary)\"?: *(.*)$")
    rows = text.splitlines()
    for n, row in enumerate(rows, 1):
        if m := key.match(row):
            value = m.group(2)
            if re.match(r"[>|][-+]?$", value):
                body = []
                for r in rows[n:]:
                    if r.strip() and len(r) - len(r.lstrip()) <= len(m.group(1)):
                        break
                    body.append(r.strip())
                value = "\n".join(body)
            yield n, "string", value.strip("\"'")


def markdown_prose(text):
    """Paragraphs, items, headings and cells; code is left out."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```|<!--.*?-->", lambda m: re.sub(r"[^\n]", "", m.group()), text)
    start, block, kind = 0, [], "paragraph"
    after_blank = True
    for n, row in enumerate([*text.splitlines(), ""], 1):
        code = (row.startswith("    ") and after_blank and not block)
        item = re.match(r"\s*(?:[-*]|\d+\.) |\s*#+ |\s*>", row)
        table = row.lstrip().startswith("|")
        if block and (not row.strip() or item or table):
            yield start, kind, "\n".join(block)
            block = []
        if code:
            continue
        after_blank = not row.strip()
        if table:
            for cell in re.split(r"(?<!\\)\|", row.strip().strip("|")):
                yield n, "cell", cell.strip()
        elif row.strip():
            if not block:
                start = n
                kind = "heading" if row.lstrip().startswith("#") else "paragraph"
            block.append(re.sub(r"^\s*(?:[-*]|\d+\.|#+|>) ", "", row) if item else row)
            if kind == "heading":
                yield start, kind, block.pop()
                after_blank = True


def prose_of(path, text):
    name = path.rsplit("/", 1)[-1]
    if path.endswith((".c", ".h")):
        return c_prose(text)
    if path.endswith((".md", "NOTES.txt")):
        return markdown_prose(text)
    if path.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
        return python_prose(text)
    if path.endswith((".yaml", ".yml", ".json")):
        return yaml_prose(text)
    if path.endswith((".sh", ".cmake", ".tpl")) or name in ("CMakeLists.txt", "Dockerfile") or text.startswith("#!"):
        return hash_prose(text)
    return []


def rules(name):
    """Rows `pattern -> what to write` of a file of style/. A pattern is a regular expression for whole words."""
    rows = [line.split(" -> ") for line in (STYLE / name).read_text().splitlines() if line and not line.startswith("#")]
    return [(re.compile(rf"(?<![\w-])(?:{pattern.strip()})(?![\w-])", re.I), advice.strip()) for pattern, advice in rows]


def sentences(prose):
    """Sentences of a text, each with the count of line breaks before it. A colon ends one, as in an error,
    and so does a column of a table in a comment."""
    start = 0
    for m in re.finditer(r"[.?!:](?=[\s)\"'*]|$)|\n\s*\n|\n(?=\s*(?:[-*]|\d+[.)]) |  )|(?<=\S) {3,}(?=\S)", prose + "\n\n"):
        piece = prose[start:m.end()]
        if piece.strip():
            yield prose.count("\n", 0, start + len(piece) - len(piece.lstrip())), piece.strip()
        start = m.end()


def is_prose(kind, prose):
    """A string counts when it has words as a sentence has: keys, formats and markup have not."""
    return kind != "string" or (len(re.findall(r"(?<![\w%/-])[A-Za-z]{2,}(?![\w/=-])", prose)) >= 2 and prose[:1] not in "<{[")


def complaints_of(path, text, words):
    for line, kind, prose in prose_of(path, text):
        if not is_prose(kind, prose):
            continue
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", prose)
        plain = CODE.sub(lambda m: "x" + "\n" * m.group().count("\n"), plain)
        for pattern, advice in words if ANY_WORD.search(plain) else ():
            for m in pattern.finditer(plain):
                yield line + plain.count("\n", 0, m.start()), f"'{' '.join(m.group().split())}': {advice}"
        for offset, sentence in sentences(plain):
            count = len(re.findall(r"[\w'%]+(?:[-./][\w']+)*", sentence))
            if count > SENTENCE_WORDS:
                yield line + offset, f"a sentence of {count} words, {SENTENCE_WORDS} at most"
            begin = sentence.capitalize() if kind == "name" else sentence
            if kind != "heading" and RIDDLE.match(begin) and not sentence.endswith("?"):
                yield line + offset, f"'{sentence.split()[0]}' begins a sentence: name the thing or the actor"
        if kind == "paragraph" and (count := len(plain.split())) > PARAGRAPH_WORDS:
            yield line, f"a paragraph of {count} words, {PARAGRAPH_WORDS} at most"


# "Who may not list may be let read": a clause as the subject. A question may begin so.
RIDDLE = re.compile(r"(?:What|Who|Whose|Whatever|Whoever|Whichever|That which|Those that|Those who|Of what)\b")
ANY_WORD = re.compile("|".join(pattern.pattern for pattern, _ in rules("words")), re.I)


def gate_language(root, paths):
    """Plain words and short sentences in the prose of a file."""
    words = rules("words")
    found = []
    for p in paths:
        if p.startswith(NOT_PROSE):
            continue
        try:
            text = (Path(root) / p).read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{p}:{n}: {what}" for n, what in sorted(set(complaints_of(p, text, words)))]
    return found
