/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - how a volume is, in words: from what hydrate, export and the mounts left on disk.
 * home: any thread; reads files. */
#pragma once

#include "driver.h"

enum { HEALTH_ITEMS_MAX = 6, HEALTH_TEXT_MAX = 400 };

struct health_item {
    Csi__V1__VolumeHealthErrorType status;
    const char *reason; /* static, CamelCase */
    char message[HEALTH_TEXT_MAX];
};

struct health {
    struct health_item items[HEALTH_ITEMS_MAX];
    size_t count;
    char progress[HEALTH_TEXT_MAX]; /* what is going on, if nothing is wrong: "hydrating: 61% ..."; "" if nothing is */
};

void health_of(const struct volume *v, struct health *ret);

/* As the contract's messages; in the call's memory. */
Csi__V1__VolumeCondition *health_condition(struct rpc_call *call, const struct health *h);
Csi__V1__VolumeHealth *health_message(struct rpc_call *call, const char *id, const struct health *h);

/* Is every byte of the source on the disk (or has it no source)? If not, *ret_text (HEALTH_TEXT_MAX) says how far it
 * is, and *ret_failed whether the last run ended in failure. */
bool data_is_whole(const struct volume *v, char *ret_text, bool *ret_failed);
