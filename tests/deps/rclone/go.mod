module cistern.io/tests/rclone

go 1.25

require github.com/rclone/rclone v1.75.1
