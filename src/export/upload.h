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

/* The write itself: nothing is in its way, or `replaces` names what may be. */
void upload_send(struct upload *u);

enum store_if upload_condition(const struct upload *u);

/* ---- compare.c: each decides what it becomes, or ends and frees it ----------------------------------------------- */

/* Did this volume or directory write the object that `a` tells of? Under `fail` alone. */
bool upload_is_own(const struct upload *u, const struct lane_answer *a);
/* A condition did not hold: what is there? */
void upload_look(struct upload *u);
void upload_looked(struct upload *u, const struct lane_answer *a);
/* The file is hashed as the store tells the object `a`; then upload_compared. */
void upload_hash(struct upload *u, const struct lane_answer *a);
void upload_compared(struct upload *u);
/* The object's bytes against `parts`, which hold the file's digests; then upload_read, or upload_unreadable. */
void upload_read_back(struct upload *u);
void upload_read(struct upload *u);
void upload_unreadable(struct upload *u); /* for `err` */

/* ---- confirm.c: the same ----------------------------------------------------------------------------------------- */

enum upload_match { MATCH_SAME, MATCH_OTHER, MATCH_UNKNOWN };

/* Our digests against what the store tells of an object. Pure. */
enum upload_match upload_compare(const struct digest *whole, const struct digest *composite,
                                 const struct lane_answer *a, enum verdict_proof *ret);

void upload_conflict(struct upload *u); /* another's object has the name */
void upload_mistrust(struct upload *u, unsigned id, const char *why);
void upload_sent(struct upload *u, enum run_event how, enum verdict_proof proof);
void upload_probed(struct upload *u, const struct lane_answer *a);

/* The store has taken it: does what it says of the object say that it has our bytes? */
void upload_confirm(struct upload *u, const struct lane_answer *a);

/* The answer to a HEAD after a lost, or a short, or an unwelcome answer. */
void upload_confirmed(struct upload *u, const struct lane_answer *a);
