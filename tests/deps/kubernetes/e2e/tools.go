// SPDX-License-Identifier: Apache-2.0

//go:build tools

package e2e

import _ "k8s.io/kubernetes/test/images/agnhost"
