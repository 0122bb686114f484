# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of the pages for users. The words behind the fence say how tests/integration/pages treats a block:

  sh                run against the test's stores
  sh cluster        run against a Kubernetes API server without nodes
  sh cloud          needs a cloud, a registry or a person's files: bash parses it, and the files that it names exist
  yaml              objects, which the API server accepts
  yaml source       fields of a BucketSource's spec
  yaml pod          fields of a pod's spec
  yaml values       values of the chart
  yaml prometheus   scrape jobs of Prometheus
  text, json, mermaid   not commands"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

KINDS = {"sh", "sh cluster", "sh cloud", "yaml", "yaml source", "yaml pod", "yaml values", "yaml prometheus", "text", "json", "mermaid"}
FOR_DEVELOPERS = {"docs/architecture.md", "docs/writing.md", "docs/performance.md"}


def is_for_users(path):
    return path == "README.md" or (bool(re.fullmatch(r"docs/(reference/)?[^/]+\.md", path)) and path not in FOR_DEVELOPERS)


@dataclass
class Block:
    page: str
    line: int
    kind: str
    text: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks_of(root, name):
    """Every fenced block; and indented ones, whose kind is ''."""
    found, lines, n = [], (Path(root) / name).read_text().splitlines(), 0
    item = 0  # the column of a list item's text
    while n < len(lines):
        fence = re.match(r"( *)```(.*)$", lines[n])
        start = n + 1
        if fence:
            n += 1
            while lines[n].strip() != "```":
                n += 1
            found.append(Block(name, start, fence[2].strip(), textwrap.dedent("\n".join(lines[start:n])) + "\n"))
        elif re.match(r"\s*(\d+\.|-) ", lines[n]):
            item = re.match(r"\s*(?:\d+\.|-) ", lines[n]).end()
        elif lines[n].strip():
            indent = len(lines[n]) - len(lines[n].lstrip())
            item = item if indent else 0
            if indent >= item + 4 and not lines[n - 1].strip():
                found.append(Block(name, start, "", lines[n].strip()))
        n += 1
    return found


def gate_pages(root, paths):
    """Commands and output of a page are fenced, and the fence says how they are tested."""
    return [f"{b.place}: fence it as one of: {', '.join(sorted(KINDS))}" for p in paths if is_for_users(p)
            for b in blocks_of(root, p) if b.kind not in KINDS]
