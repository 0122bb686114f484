/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/resource.h"
#include <stdio.h>

const struct kube_resource kube_config_maps = {"", "v1", "configmaps", "ConfigMap", true};
const struct kube_resource kube_deployments = {"apps", "v1", "deployments", "Deployment", true};
const struct kube_resource kube_events_resource = {"", "v1", "events", "Event", true};
const struct kube_resource kube_jobs = {"batch", "v1", "jobs", "Job", true};
const struct kube_resource kube_endpoint_slices = {"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
const struct kube_resource kube_leases = {"coordination.k8s.io", "v1", "leases", "Lease", true};
const struct kube_resource kube_namespaces = {"", "v1", "namespaces", "Namespace", false};
const struct kube_resource kube_nodes = {"", "v1", "nodes", "Node", false};
const struct kube_resource kube_persistent_volume_claims = {"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim",
                                                            true};
const struct kube_resource kube_persistent_volumes = {"", "v1", "persistentvolumes", "PersistentVolume", false};
const struct kube_resource kube_pods = {"", "v1", "pods", "Pod", true};
const struct kube_resource kube_reference_grants = {"gateway.networking.k8s.io", "v1beta1", "referencegrants",
                                                    "ReferenceGrant", true};
const struct kube_resource kube_secrets = {"", "v1", "secrets", "Secret", true};
const struct kube_resource kube_service_accounts = {"", "v1", "serviceaccounts", "ServiceAccount", true};
const struct kube_resource kube_storage_classes = {"storage.k8s.io", "v1", "storageclasses", "StorageClass", false};
const struct kube_resource kube_token_reviews = {"authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false};

char *kube_api_version(const struct kube_resource *r, char buf[KUBE_API_VERSION_MAX])
{
    snprintf(buf, KUBE_API_VERSION_MAX, "%s%s%s", r->group, r->group[0] ? "/" : "", r->version);
    return buf;
}

json *kube_object(const struct kube_resource *r, struct str ns, struct str name)
{
    char version[KUBE_API_VERSION_MAX];
    json *j = json_new_object();
    json_set_strings(j, {"apiVersion", str_of(kube_api_version(r, version))}, {"kind", str_of(r->kind)},
                     {"?metadata.name", name}, {"?metadata.namespace", ns});
    return j;
}
