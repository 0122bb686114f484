# SPDX-License-Identifier: Apache-2.0
"""proto/pluginregistration.proto is our own text of the kubelet's contract: here it is held to the published one."""
import subprocess

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from integration.csi.descriptors import differences, facts_of
from paths import CACHE, TOP


def test_our_text_and_the_published_one_say_the_same(tmp_path):
    out = tmp_path / "proto.bin"
    assert protoc.main(["protoc", f"-I{TOP / 'proto'}", f"--descriptor_set_out={out}", "pluginregistration.proto"]) == 0
    ours = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    theirs = descriptor_pb2.FileDescriptorProto.FromString(
        subprocess.run([CACHE / "bin" / "kubelet-spec"], check=True, capture_output=True).stdout)
    assert ours.package == theirs.package
    assert differences(facts_of(ours), facts_of(theirs)) == differences(facts_of(theirs), facts_of(ours)) == {}
