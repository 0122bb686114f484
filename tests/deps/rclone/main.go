// SPDX-License-Identifier: Apache-2.0

// rclone with the two backends and the two verbs that tests and tests/bench run: the whole takes ten times as long to build.
package main

import (
	_ "github.com/rclone/rclone/backend/local"
	_ "github.com/rclone/rclone/backend/s3"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/copy"
	_ "github.com/rclone/rclone/cmd/lsf"
)

func main() {
	cmd.Main()
}
