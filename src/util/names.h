/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - every name that users, clusters and buckets know us by; nowhere else are they spelled. */
#pragma once

#define NAME_DRIVER "csi.cistern.io"
#define NAME_API_GROUP "cistern.io"
#define NAME_API_VERSION "v1alpha1"
#define NAME_TOPOLOGY_KEY "topology.cistern.io/node"
#define NAME_FINALIZER_POPULATE "cistern.io/populate-target-protection"
#define NAME_FINALIZER_RELEASE "cistern.io/release"
#define NAME_NAMESPACE "cistern-system"
#define NAME_EVENTS_CONTROLLER "cistern-controller"
#define NAME_EVENTS_NODE "cistern-node"
