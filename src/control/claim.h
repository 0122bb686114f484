/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - Resolves the claim of a CreateVolume: follows a prime to its target, reads annotations, copies the source.
 * Private. */
#pragma once

#include "order.h"

struct control;

/* The fields of a claim that Cistern reads. Strings are views into the claim. */
struct claim_words {
    struct str namespace, name, uid;
    struct str source, source_namespace; /* a BucketSource; empty: none */
    bool is_populated; /* dataSourceRef names the source, so the claim binds only after the data is on the disk */
    struct str hydration, on_data_loss, export_policy;
};

/* Reads the object of the target claim, never of a prime. ERR_INVALID names the invalid field. */
must_check int claim_words_read(const json *claim, struct claim_words *ret, struct err *err);

/* Applies hydration and onDataLoss to the parameters of `v`. An annotation overrides the class. A source that only an
 * annotation names cannot delay the binding: then `eager` becomes `gate`. */
must_check int claim_words_apply(const struct claim_words *w, struct api_volume *v, struct err *err);

/* The spec of a new volume: that of the source, with the export of the policy instead of the source's own. Either may
 * be NULL; *ret is NULL if both are. The caller frees. */
must_check int claim_source_merge(const json *source, const json *policy, json **ret, struct err *err);

/* Resolves the claim of a CreateVolume into `v`: claim, source, parameters. ERR_NOT_FOUND: a claim or a source does not
 * exist; ERR_INVALID: it is unsupported. A request without a claim leaves `v` blank. */
must_check int claim_resolve(struct control *c, const struct csi_create *q, struct api_volume *v, struct err *err);
