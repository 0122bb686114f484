# SPDX-License-Identifier: Apache-2.0
"""Reads a .proto file as comparable facts: every name with its number and type."""


def enum_facts(prefix, enum):
    return {(prefix + enum.name, v.name): v.number for v in enum.value}


def message_facts(prefix, message):
    name = prefix + message.name
    facts = {(name,): "message"}
    for f in message.field:
        oneof = message.oneof_decl[f.oneof_index].name if f.HasField("oneof_index") else None
        facts[(name, f.name)] = (f.number, f.type, f.label, f.type_name, oneof)
    for enum in message.enum_type:
        facts |= enum_facts(name + ".", enum)
    for nested in message.nested_type:
        facts |= message_facts(name + ".", nested)
    return facts


def facts_of(file):
    """Every name of the file, with its number and type."""
    facts = {}
    for message in file.message_type:
        facts |= message_facts("", message)
    for enum in file.enum_type:
        facts |= enum_facts("", enum)
    for service in file.service:
        for m in service.method:
            facts[(service.name, m.name)] = (m.input_type, m.output_type, m.client_streaming, m.server_streaming)
    return facts


def differences(ours, theirs):
    return {name: (fact, theirs.get(name)) for name, fact in ours.items() if theirs.get(name) != fact}
