#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# machine.sh NAME DIRECTORY INIT SHARED...: the first program of a machine of the test cluster, process 1 of fresh mount, net,
# pid, ipc and uts namespaces. It gives the machine a root of its own and becomes INIT. DIRECTORY is the machine's disk;
# SHARED are directories that it sees where the host has them.
set -eu
name=$1 folder=$2 init=$3
shift 3
root=$folder/root
mkdir -p "$root" "$folder/var/lib/kubelet" "$folder/var/log" "$folder/var/tmp" "$folder/etc"

# The host's own file system without its mounts: foreign mounts would stay here after their unmount on the host, and so
# would their loop devices.
mount --make-rprivate /
mount --bind / "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/mnt"
mount --bind "$folder/var" "$root/var"
for shared in "$@"; do
    mkdir -p "$root$shared"
    mount --bind "$shared" "$root$shared"
done

# The kubelet insists on these, and they are the whole machine's: it finds what it wants, and changes nothing.
fake() {
    echo "$2" >"$folder/etc/$(basename "$1")"
    mount --bind "$folder/etc/$(basename "$1")" "$root/proc/sys/$1"
}
fake vm/overcommit_memory 1
fake vm/panic_on_oom 0
fake kernel/panic 10
fake kernel/panic_on_oops 1
fake kernel/keys/root_maxkeys 1000000
fake kernel/keys/root_maxbytes 25000000

# A pod in a user namespace may mount proc only if its node has a proc that no mount covers, and the fakes cover /proc.
mkdir "$root/run/proc"
mount -t proc proc "$root/run/proc"

cd "$root"
pivot_root . .
umount -l .
mount --make-rshared / # or the mounts of a Bidirectional pod do not spread
hostname "$name"
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
: >"$folder/ready"
exec "$init"
