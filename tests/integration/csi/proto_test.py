# SPDX-License-Identifier: Apache-2.0
"""proto/csi.proto is our own text of a contract that others wrote: here it is held to their published descriptors."""
import subprocess
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from paths import CACHE, TOP

from .descriptors import differences, facts_of

SERVICES = {"Identity", "Controller", "Node"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    out = tmp_path_factory.mktemp("proto") / "csi.bin"
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"-I{TOP / 'proto'}", f"-I{well_known}", f"--descriptor_set_out={out}", "csi.proto"])
    assert code == 0
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


def published(version):
    out = subprocess.run([CACHE / "bin" / f"csi-spec-{version}"], check=True, capture_output=True).stdout
    return descriptor_pb2.FileDescriptorProto.FromString(out)


def test_all_that_we_say_is_in_the_contract_of_1_12_or_1_13_with_the_same_numbers_and_types(ours):
    old, new = facts_of(published("1.12")), facts_of(published("1.13"))
    assert not {name for name in old.keys() & new.keys() if old[name] != new[name]}, "the two versions disagree"
    assert differences(facts_of(ours), old | new) == {}


@pytest.mark.parametrize("version", ["1.12", "1.13"])
def test_our_services_lack_no_method_message_field_or_value_of_either_version(ours, version):
    theirs = published(version)
    mine, wanted = facts_of(ours), facts_of(theirs)
    messages = {m.name: m for m in theirs.message_type}
    enums = {e.name for e in theirs.enum_type}
    reached, todo = set(), set()
    for service in theirs.service:
        if service.name in SERVICES:
            reached.add(service.name)
            todo |= {t.rsplit(".", 1)[1] for m in service.method for t in (m.input_type, m.output_type)}
    while todo:
        name = todo.pop()
        reached.add(name)
        if name in messages:
            used = [f.type_name for m in walk(messages[name]) for f in m.field if f.type_name.startswith(".csi.v1.")]
            todo |= {t.split(".")[3] for t in used} - reached
        else:
            assert name in enums
    missing = {n for n in wanted if n[0].split(".")[0] in reached and n not in mine}
    assert missing == set()


def walk(message):
    yield message
    for nested in message.nested_type:
        yield from walk(nested)


def test_a_changed_number_is_seen(ours):
    changed = descriptor_pb2.FileDescriptorProto()
    changed.CopyFrom(ours)
    changed.message_type[0].field.add(name="more", number=1, type=9, label=1)
    next(m for m in changed.message_type if m.name == "Volume").field[0].number = 9
    theirs = facts_of(published("1.12")) | facts_of(published("1.13"))
    assert set(differences(facts_of(changed), theirs)) == {
        (changed.message_type[0].name, "more"), ("Volume", "capacity_bytes")}
