/* SPDX-License-Identifier: Apache-2.0 */
/* publish.h - stores the certificate in the cluster: Secret cistern-broker-tls, ConfigMap cistern-broker-ca.
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
    const struct kube_lease *lease; /* borrowed; NULL: this process leads */
    struct cert_times times;
    struct str guard; /* addresses that Jobs may connect to; they mount the same ConfigMap */
};

/* Reads the Secret; the leader renews its content and publishes the CAs. *ret has the certificate to serve (an
 * empty set: none yet). A repeated call is safe, also after a crash. */
must_check int publish_step(const struct publisher *p, struct cert_set *ret, struct err *err);
