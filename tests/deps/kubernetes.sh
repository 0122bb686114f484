#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What tests/e2e makes a cluster of, below $CISTERN_CACHE/kubernetes: in bin/ Kubernetes' own programs and its tests of
# storage drivers, etcd, containerd, runc, the CSI sidecars, helm and kubeconform, built from pinned Go modules (pods in
# user namespaces need containerd 2.0 and runc 1.2, which no Debian 12 has); in debian/ the CNI plugins and busybox,
# unpacked from the distribution's packages; and Kubernetes' OpenAPI definitions, which manifests are held to. Fifteen
# minutes on two cores with empty caches; what was made from the same pins is kept. In debs/ is what deploy/image/rootfs
# unpacks.
set -eu

here=$(cd "$(dirname "$0")" && pwd)/kubernetes
root=${CISTERN_CACHE:-/var/cache/cistern}/kubernetes
kubernetes=v1.34.4

command -v go >/dev/null || { echo "kubernetes: needs Go 1.24 or later in PATH" >&2; exit 1; }
mkdir -p "$root/bin"
exec 9>"$root/.lock" # two that find it missing at once
flock 9
export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'

tools='nftables iproute2 openssl xfsprogs gcc libc6-dev libseccomp-dev pkg-config'
# shellcheck disable=SC2086 # a list of words
if ! dpkg -s $tools >/dev/null 2>&1; then
    [ "$(id -u)" = 0 ] || { echo "kubernetes: must run as root" >&2; exit 1; }
    apt-get -qq update
    # None of these starts a service.
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y $tools >/dev/null
fi

# wanted NAME RECIPE: whether NAME has yet to be made. A recipe is all that the program depends on.
wanted() {
    recipe=$2
    [ "$(cat "$root/bin/.$1" 2>/dev/null)" != "$recipe" ] || [ ! -x "$root/bin/$1" ]
}

made() {
    mv "$root/bin/$1.part" "$root/bin/$1"
    echo "$recipe" >"$root/bin/.$1"
}

# pinned FOLDER LDFLAGS PACKAGE...: programs of modules that have replacements of their own, built through ours.
pinned() {
    folder=$here/$1 flags=$2
    shift 2
    pins=$(cat "$folder/go.mod" "$folder/go.sum" | sha256sum | cut -d' ' -f1)
    for package in "$@"; do
        name=${package##*/}
        [ "$name" != v3 ] || name=etcd
        wanted "$name" "$package $flags $pins" || continue
        echo "kubernetes: building $name; this takes minutes, once"
        nice go build -C "$folder" -mod=readonly -ldflags "$flags" -o "$root/bin/$name.part" "$package"
        made "$name"
    done
}

# module NAME MODULE VERSION PACKAGE SUM: a program built inside its own module, with that module's pins.
module() {
    wanted "$1" "$*" || return 0
    echo "kubernetes: building $1; this takes minutes, once"
    info=$(go mod download -json "$2@$3")
    case $info in *"\"Sum\": \"$5\""*) ;; *) echo "kubernetes: $2@$3 is not the one that is pinned" >&2; exit 1 ;; esac
    dir=$(echo "$info" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
    nice go build -C "$dir" -mod=readonly -ldflags '-s -w' -o "$root/bin/$1.part" "$4"
    made "$1"
}

base=k8s.io/component-base/version client=k8s.io/client-go/pkg/version
pinned kubernetes "-s -w -X $base.gitVersion=$kubernetes -X $base.gitMajor=1 -X $base.gitMinor=34 \
-X $client.gitVersion=$kubernetes" \
    k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager \
    k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kube-proxy k8s.io/kubernetes/cmd/kubelet \
    k8s.io/kubernetes/cmd/kubectl
pinned e2e '-s -w' k8s.io/kubernetes/test/images/agnhost
pins=$(cat "$here"/e2e/* | sha256sum | cut -d' ' -f1)
if wanted storage.test "storage.test $pins"; then
    echo "kubernetes: building storage.test; this takes minutes, once"
    nice go test -C "$here/e2e" -c -mod=readonly -ldflags '-s -w' -o "$root/bin/storage.test.part" .
    made storage.test
fi
pinned etcd '-s -w' go.etcd.io/etcd/server/v3
module csi-provisioner github.com/kubernetes-csi/external-provisioner/v6 v6.3.0 ./cmd/csi-provisioner \
    h1:cC5Y10GbdTHXUTBBz0g7jKZKm7AJJk586WV5rVNWdck=
module csi-resizer github.com/kubernetes-csi/external-resizer/v2 v2.3.0 ./cmd/csi-resizer \
    h1:dsdHhB3s4BJUkO7Jaemd6hw3YEms1ZlMF/bksbDE+bw=
module helm helm.sh/helm/v3 v3.22.0 ./cmd/helm h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=
module kubeconform github.com/yannh/kubeconform v0.8.0 ./cmd/kubeconform \
    h1:loDYd3a3spjIFrauqW67CDKF55Oo9R6uvC8AvpVd4ug=
for name in containerd containerd-shim-runc-v2 ctr; do
    module $name github.com/containerd/containerd/v2 v2.3.7 ./cmd/$name h1:7PGbgAVKE4ieQjFPv7+kwAv7f9dCtRpExZwjExHD/Fk=
done
( # it enters namespaces in C, and our pods have the seccomp profile RuntimeDefault
    export CGO_ENABLED=1 GOFLAGS="$GOFLAGS -tags=seccomp"
    module runc github.com/opencontainers/runc v1.4.3 . h1:/bq84roxG30xEICkFodXzMEVQFs7kzo4lCiZME1uKxI=
)

definitions=$root/openapi-$kubernetes.json
if [ ! -s "$definitions" ]; then
    dir=$(go list -C "$here/kubernetes" -mod=readonly -m -f '{{.Dir}}' k8s.io/kubernetes)
    cp "$dir/api/openapi-spec/swagger.json" "$definitions.part"
    mv "$definitions.part" "$definitions"
fi

packages='containernetworking-plugins busybox mdadm'
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
if [ "$(cat "$root/debian/.made" 2>/dev/null)" != "$suite $packages" ]; then
    [ "$(id -u)" = 0 ] || { echo "kubernetes: must run as root" >&2; exit 1; }
    apt-get -qq update
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # shellcheck disable=SC2086 # a list of words
    (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download $packages)
    for deb in "$work"/*.deb; do
        dpkg-deb -x "$deb" "$work/tree"
    done
    echo "$suite $packages" >"$work/tree/.made"
    mkdir -p "$root/debs"
    rm -f "$root/debs"/*
    mv "$work"/mdadm_*.deb "$root/debs/"
    rm -rf "$root/debian"
    cp -a "$work/tree" "$root/debian"
fi
