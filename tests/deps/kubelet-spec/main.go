// SPDX-License-Identifier: Apache-2.0
// Writes the descriptor of the kubelet's registration API, as this module has it, to stdout.
package main

import (
	"log"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	file := pluginregistration.File_staging_src_k8s_io_kubelet_pkg_apis_pluginregistration_v1_api_proto
	bytes, err := proto.Marshal(protodesc.ToFileDescriptorProto(file))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(bytes); err != nil {
		log.Fatal(err)
	}
}
