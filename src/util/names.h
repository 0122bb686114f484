/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - defines every name of Cistern that users, clusters and buckets see: groups, labels, annotations. */
#pragma once

#define NAME_DRIVER "csi.cistern.io"
#define NAME_API_GROUP "cistern.io"
#define NAME_API_VERSION "v1alpha1"
#define NAME_TOPOLOGY_KEY "topology.cistern.io/node"
#define NAME_NAMESPACE "cistern-system"
#define NAME_POOL_DEFAULT "default" /* of a StorageClass without the parameter pool */

/* Labels of CisternVolumes. */
#define NAME_LABEL_NODE NAME_API_GROUP "/node"
#define NAME_LABEL_POOL NAME_API_GROUP "/pool"

#define NAME_FINALIZER_POPULATE NAME_API_GROUP "/populate-target-protection" /* of a claim that is being filled */
#define NAME_FINALIZER_RELEASE NAME_API_GROUP "/release"                     /* of a CisternVolume */

/* Annotations of a claim, read once, when its volume is ordered. */
#define NAME_ANNOTATION_SOURCE NAME_API_GROUP "/source"
#define NAME_ANNOTATION_HYDRATION NAME_API_GROUP "/hydration"
#define NAME_ANNOTATION_EXPORT_POLICY NAME_API_GROUP "/export-policy"
#define NAME_ANNOTATION_ON_DATA_LOSS NAME_API_GROUP "/on-data-loss"
/* On a PersistentVolume. */
#define NAME_ANNOTATION_DISCARD_UNEXPORTED                                                                             \
    NAME_API_GROUP "/discard-unexported" /* set by an administrator; its value: the id */
/* On a CisternVolume: "true" after a file of it has reached the bucket. */
#define NAME_ANNOTATION_HAS_EXPORTED NAME_API_GROUP "/has-exported"
/* On a CisternVolume: since when its export fails, RFC 3339. */
#define NAME_ANNOTATION_EXPORT_FAILING_SINCE NAME_API_GROUP "/export-failing-since"
/* On a CisternVolume: since when its node is cordoned, and since when only pods use it that a drain does not evict. */
#define NAME_ANNOTATION_CORDONED_SINCE NAME_API_GROUP "/node-cordoned-since"
#define NAME_ANNOTATION_DRAIN_BLOCKED_SINCE NAME_API_GROUP "/drain-blocked-since"
#define NAME_ANNOTATION_REPLACE_POOL NAME_API_GROUP "/replace-pool" /* on a CisternPool; its value: the old UUID */
#define NAME_ANNOTATION_ALLOW_BUCKET_ACCESS                                                                            \
    NAME_API_GROUP "/allow-bucket-access" /* on a ServiceAccount: volumes may use it */

#define NAME_EVENTS_CONTROLLER "cistern-controller"
#define NAME_EVENTS_NODE "cistern-node"
#define NAME_AUDIENCE_BROKER "cistern-broker" /* of the tokens that the credential broker accepts */

/* A prime claim is in the controller's namespace; its target is the user's claim. Name: "prime-<the target's uid>". */
#define NAME_PRIME_PREFIX "prime-"
#define NAME_ANNOTATION_POPULATE_TARGET                                                                                \
    "cistern.io/populate-target"                                 /* annotation: "<namespace>/<name>" of the target */
#define NAME_ANNOTATION_POPULATE_NODE "cistern.io/populate-node" /* annotation: the node that it was made for */
#define NAME_ANNOTATION_POPULATE_CORDONED                                                                              \
    "cistern.io/populate-cordoned" /* annotation: "true", that node was cordoned already */
#define NAME_ANNOTATION_RECLAIM_POLICY                                                                                 \
    "cistern.io/reclaim-policy" /* annotation: its class's policy, while it is a prime's */
#define NAME_ANNOTATION_POPULATED_FROM "cistern.io/populated-from" /* annotation: "<namespace>/<BucketSource>" */
