# SPDX-License-Identifier: Apache-2.0
"""Checks that each room of src/ calls only the rooms that it uses and the libraries that it owns.

  tests/floors.py BUILD

The headers that a room sees are checked by the compiler. A call that a room declares by hand, or to a library of another
room, links in an archive. So this reads the symbols of the archives that BUILD has, by the records in BUILD/floors."""
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

# The C library, its loader, the compiler's runtime; capabilities have no header of a room.
EVERYWHERE = ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1"]


def nm(path, *flags):
    shared = ".so" in Path(path).name
    out = subprocess.run(["nm", "--no-sort", *(["-D"] if shared else []), *flags, path], check=True, capture_output=True,
                         text=True, errors="replace").stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if re.search(r"(^| )[A-Za-z] \S+$", line)}


@cache
def defined(path):
    return nm(path, "--defined-only")


@cache
def undefined(path):
    return nm(path, "--undefined-only")


def file_of(library):
    """The file that the linker takes for `library`, as CMake wrote it: a path, -lNAME or NAME. None for a flag."""
    if library.startswith("/"):
        return library
    name = library.removeprefix("-l")
    if name.startswith("-") or "::" in name:
        return None
    path = subprocess.run(["cc", f"-print-file-name={name if '.so' in name else f'lib{name}.so'}"], check=True,
                          capture_output=True, text=True).stdout.strip()
    if not path.startswith("/"):
        return None
    return None if Path(path).read_bytes()[:4] != b"\x7fELF" else path  # else a linker script: libc and libm


def read(build):
    """room -> (archive, rooms that it uses, files of the libraries that it owns)"""
    rooms = {}
    for record in sorted((Path(build) / "floors").iterdir()):
        archive, uses, libraries = record.read_text().split("\n")[:3]
        files = [f for library in libraries.split(";") if library and (f := file_of(library))]
        rooms[record.name] = (archive, [u for u in uses.split(";") if u], files)
    return rooms


def below(rooms, room):
    """The room itself, and all rooms that it may call."""
    seen, todo = set(), [room]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += rooms[name][1]
    return seen


def complaints(rooms):
    system = set().union(*(defined(file_of(name)) for name in EVERYWHERE))
    for room, (archive, _, files) in rooms.items():
        callable_rooms = below(rooms, room)
        known = system.union(*(defined(rooms[r][0]) for r in callable_rooms), *map(defined, files))
        if "proto" in callable_rooms:  # the types of generated code are protobuf-c's
            known = known.union(*map(defined, rooms["proto"][2]))
        for symbol in sorted(undefined(archive) - known):
            owners = [r for r, (a, _, own) in rooms.items() if symbol in defined(a) or any(symbol in defined(f) for f in own)]
            if owners or not symbol.startswith("_"):
                yield f"{room}: calls {symbol} of {', '.join(owners) or 'a library that no room owns'}"


def main():
    rooms = read(sys.argv[1])
    found = list(complaints(rooms))
    # A check that never fires proves nothing: without its floors and libraries each room must be refused.
    for room, (archive, uses, files) in rooms.items():
        if room not in ("util", "proto") and not list(complaints({**rooms, room: (archive, [], [])})):
            found.append(f"{room}: is accepted without the rooms and libraries that it needs")
    print(*found, f"floors: {len(rooms)} rooms, {len(found)} complaints", sep="\n")
    return 1 if found or not rooms else 0


if __name__ == "__main__":
    sys.exit(main())
