/* SPDX-License-Identifier: Apache-2.0 */
/* publish.h - the certificate in the cluster: Secret cistern-broker-tls, ConfigMap cistern-broker-ca.
 * home: one thread that may wait. */
#pragma once

#include "broker/cert.h"
#include "kube/client.h"
#include "kube/lease.h"

#define PUBLISH_SERVICE "cistern-broker"
#define PUBLISH_SECRET "cistern-broker-tls"
#define PUBLISH_CONFIG_MAP "cistern-broker-ca"

struct publisher {
    struct kube *kube; /* borrowed */
    const char *ns;
    const struct kube_lease *lease; /* borrowed; NULL: we lead */
    struct cert_times times;
    struct str guard; /* where Jobs may connect to, for the same ConfigMap: they mount it */
};

/* Reads the Secret; who leads brings it to where it should be now, and publishes its authorities. *ret holds what is to
 * be served (an empty set: there is none yet). Every step may be repeated; a crash between two costs nothing. */
must_check int publish_step(const struct publisher *p, struct cert_set *ret, struct err *err);
