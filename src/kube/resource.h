/* SPDX-License-Identifier: Apache-2.0 */
/* resource.h - kinds of object, and where the API server keeps them. home: any; frozen. */
#pragma once

#include "util/json.h"

struct kube_resource {
    const char *group; /* "" is the core group */
    const char *version;
    const char *plural; /* the segment in paths: "pods" */
    const char *kind;   /* "Pod" */
    bool namespaced;
};

/* Resources of Kubernetes that Cistern uses; its own are beside the code that knows their fields. */
extern const struct kube_resource kube_config_maps, kube_deployments, kube_endpoint_slices, kube_events_resource,
    kube_jobs, kube_leases, kube_namespaces, kube_nodes, kube_persistent_volume_claims, kube_persistent_volumes,
    kube_pods, kube_reference_grants, kube_secrets, kube_service_accounts, kube_storage_classes, kube_token_reviews;

/* "v1", "batch/v1". Returns buf. */
enum { KUBE_API_VERSION_MAX = 128 };
char *kube_api_version(const struct kube_resource *r, char buf[KUBE_API_VERSION_MAX]);

/* An object with its apiVersion, kind, name and namespace; STR_NULL: it has none. The caller frees. */
json *kube_object(const struct kube_resource *r, struct str ns, struct str name);
