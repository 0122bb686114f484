// SPDX-License-Identifier: Apache-2.0
// Writes the descriptor of the published CSI contract, as this module has it, to stdout.
package main

import (
	"log"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
)

func main() {
	bytes, err := proto.Marshal(protodesc.ToFileDescriptorProto(csi.File_csi_proto))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(bytes); err != nil {
		log.Fatal(err)
	}
}
