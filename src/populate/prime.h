/* SPDX-License-Identifier: Apache-2.0 */
/* prime.h - the bodies of the requests that claim.h asks for. Pure: the caller frees what is returned. */
#pragma once

#include "claim.h"

/* The prime claim of `target`, for the node that it names: its class, size, modes, labels, selector and attributes
 * class, so that the volume is the very one that the target would have got. None of its annotations: what reads it
 * follows it to the target. */
json *prime_json(const json *target, struct str own_namespace, bool node_is_cordoned);

/* JSON patches of the target; each holds only for the object that was looked at. */
json *target_guard_patch(const json *target);
json *target_unguard_patch(const json *target);                 /* NULL: it is not there */
json *target_select_patch(const json *target, struct str node); /* which names none */
json *target_unselect_patch(const struct claim *target);

/* Merge patches of the volume; each holds only for the version that was looked at. */
json *pv_keep_patch(const struct claim_pv *pv);
json *pv_hand_over_patch(const struct claim_pv *pv, const struct claim *target);
