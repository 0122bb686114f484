module cistern.io/tests/csi-sanity

go 1.25.0

require github.com/kubernetes-csi/csi-test/v5 v5.6.0
