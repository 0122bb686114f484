/* SPDX-License-Identifier: Apache-2.0 */
/* upload.h - what upload.c (its steps) and confirm.c (its ends) share. home: as in engine.h. */
#pragma once

#include "engine.h"

/* ---- upload.c ---------------------------------------------------------------------------------------------------- */

void upload_become(struct upload *u, enum upload_state next);
bool upload_is_large(const struct upload *u);

/* The key of its path and version. On failure nothing has changed. */
must_check int upload_set_key(struct upload *u, struct err *err);

/* Its multipart upload is no more, and the logbook knows it. None: nothing to do. */
void upload_ended(struct upload *u);

/* Its multipart upload is aborted, and what else of its key nobody knows is swept; then `after`, for the reason `why`,
 * which may be the upload's own error. */
void upload_drop(struct upload *u, enum upload_after after, const struct err *why);

/* From the start, with nothing of it left at the store. */
void upload_begin_again(struct upload *u);

/* The same, when the store does not know its multipart upload any more. */
void upload_lost(struct upload *u);

/* And when that happens again and again: it fails. `why` may be the upload's own error. */
void upload_vanishes(struct upload *u, const struct err *why);

/* ---- confirm.c: each decides what it becomes, or ends and frees it ----------------------------------------------- */

/* Another object has the name. */
void upload_conflict(struct upload *u);
void upload_sent(struct upload *u, enum run_event how);

/* The store has taken it: does what it says of the object say that it has our bytes? */
void upload_confirm(struct upload *u, const struct lane_answer *a);

/* The answer to a HEAD after a lost, or a short, or an unwelcome answer. */
void upload_confirmed(struct upload *u, const struct lane_answer *a);
