/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - from the claim of a CreateVolume to what it wants: a prime is followed to its target, annotations are read,
 * the source is copied. Private to this folder. */
#pragma once

#include "order.h"

struct control;

/* What a claim says, of which the sentences are pure. Strings are views into the claim. */
struct claim_words {
    struct str namespace, name, uid;
    struct str source, source_namespace; /* a BucketSource; empty: none */
    bool is_populated;                   /* its dataSourceRef names it, so that it binds when the data is there */
    struct str hydration, on_data_loss, export_policy;
};

/* From the object of the claim (the target, never a prime). ERR_INVALID names what is off. */
must_check int claim_words_read(const json *claim, struct claim_words *ret, struct err *err);

/* What the words change of the parameters of `v`: hydration and onDataLoss. An annotation wins over the class; a source
 * that only an annotation names cannot hold the binding back, so that `eager` becomes `gate`. */
must_check int claim_words_apply(const struct claim_words *w, struct api_volume *v, struct err *err);

/* The spec that a volume keeps: the source's, with the export of the policy instead of its own. Either may be NULL;
 * *ret is NULL if both are. The caller frees. */
must_check int claim_source_merge(const json *source, const json *policy, json **ret, struct err *err);

/* Resolves the claim of the wish into w->volume: claim, source, parameters. ERR_NOT_FOUND: a claim or a source is not
 * there; ERR_INVALID: it is not one that this version serves. A wish without a claim stays blank. */
must_check int claim_resolve(struct control *c, struct wish *w, struct err *err);

/* A warning on the target of the prime `name`: what the provisioner tells of the prime is in our namespace, where the
 * target's owner does not look. Of another claim nothing is told. Best effort. */
void claim_tell(struct control *c, const char *namespace, const char *name, const struct err *what);
