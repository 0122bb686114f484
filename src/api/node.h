/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - reads Kubernetes's own Node objects. Pure. */
#pragma once

#include "util/json.h"

/* Taints of the controller manager: the kubelet does not respond, or says that it is not ready. */
#define API_NODE_UNREACHABLE "node.kubernetes.io/unreachable"
#define API_NODE_NOT_READY "node.kubernetes.io/not-ready"
/* The node is cordoned. */
#define API_NODE_UNSCHEDULABLE "node.kubernetes.io/unschedulable"

/* NULL: the node does not have it. */
const json *api_node_taint(const json *node, const char *key);

/* Can its kernel show a FUSE mount with the ids of a pod in a user namespace? That needs Linux 6.12. True for a node
 * that does not report a version. */
bool api_node_maps_fuse(const json *node);

/* Has the node the labels of one of these terms? `topologies`: allowedTopologies of a StorageClass; NULL: any node. */
bool api_node_is_in(const json *node, const json *topologies);
