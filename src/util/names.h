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

/* A prime claim: made in our namespace for a target claim elsewhere, of the name "prime-<the target's uid>". */
#define NAME_PRIME_PREFIX "prime-"
#define NAME_PRIME_TARGET "cistern.io/populate-target"     /* annotation: "<namespace>/<name>" of the target */
#define NAME_PRIME_NODE "cistern.io/populate-node"         /* annotation: the node that it was made for */
#define NAME_PRIME_CORDONED "cistern.io/populate-cordoned" /* annotation: "true", that node was cordoned already */
#define NAME_PV_RECLAIM "cistern.io/reclaim-policy"        /* annotation: its class's policy, while it is a prime's */
#define NAME_PV_POPULATED "cistern.io/populated-from"      /* annotation: "<namespace>/<BucketSource>" */
