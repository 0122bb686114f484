/* SPDX-License-Identifier: Apache-2.0 */
/* claim_patch.h - builds the prime claim and the patches for the steps of claim.h. Pure. The caller frees them. */
#pragma once

#include "claim.h"

/* The prime claim of `target` for its selected node. Class, size, modes, labels, selector and attributes class are
 * copied, so that the volume is the one that the target would have got. Annotations are not copied: controllers that
 * read them would act twice. */
json *claim_patch_prime(const json *target, struct str own_namespace, bool node_is_cordoned);

/* JSON patches of the target. Each fails if the claim has another uid, or if the field that it writes has changed.
 * Where that field was missing, the patch tests the resourceVersion: an absence cannot be tested. */
json *claim_patch_add_finalizer(const json *target);
json *claim_patch_remove_finalizer(const json *target);        /* NULL: it has none */
json *claim_patch_select(const json *target, struct str node); /* the target names no node */
json *claim_patch_unselect(const struct claim *target);

/* Merge patches of the volume; each fails if the volume has changed. */
json *claim_patch_save_policy(const struct claim_pv *pv);
json *claim_patch_hand_over(const struct claim_pv *pv, const struct claim *target);
