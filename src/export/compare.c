/* SPDX-License-Identifier: Apache-2.0 */
/* An object that has the name already: whose is it, and does it hold the file's bytes? And reading an object back,
 * where the store tells nothing comparable. */
#include "parts.h"
#include "upload.h"
#include "util/str.h"
#include <inttypes.h>
#include <stdio.h>

enum { LOOKS_MAX = 3 };

/* ---- whose object ------------------------------------------------------------------------------------------------ */

/* Of this volume or directory: by the identity in its metadata; where the store keeps none, by the recorded tag. Some
 * servers keep the metadata of an object that another writer replaces: so it also names the size, and the upload. The
 * recorded upload must have the recorded tag; another one is an upload of ours that a kill left unrecorded. */
bool upload_is_own(const struct upload *u, const struct lane_answer *a)
{
    const struct run *r = u->run;
    const struct stamp *sent = logbook_stamp(r->logbook, u->path);
    char mine[OWNER_TEXT_MAX], uid[LOGBOOK_UID_MAX] = "";
    struct str tag = logbook_tag(r->logbook, u->path), told = str_of(a->owner);
    bool is_recorded = tag.len > 0 && str_eq(tag, str_of(a->tag));
    if (r->o.policy->conflict != CONFLICT_FAIL || u->version > 1)
        return false;
    int n = snprintf(mine, sizeof mine, "%s-%" PRIu64 "-", r->o.owner, a->size_bytes);
    if (told.len == 0 || !str_starts(told, (struct str){mine, (size_t)n}))
        return told.len == 0 && is_recorded;
    if (sent)
        run_make_uid(u->path, sent, uid);
    return is_recorded || tag.len == 0 || !str_eq(str_from(told, (size_t)n), str_of(uid));
}

/* The file is not in the object that was seen. */
static void differs(struct upload *u)
{
    struct err err;
    if (!u->met_another) {
        upload_mistrust(u, 4022, "the bucket has other bytes than the file");
    } else if (u->is_own && checkpoint_is_others(u)) {
        err_set(&err, ERR_EXISTS, "its checkpoint in the bucket has a marker that another wrote");
        err_advise(&err, 4409, "both are kept; remove one, or set conflict to overwrite or version");
        run_file_failed(u, &err, false);
    } else if (u->is_own) {
        memcpy(u->replaces, u->seen, sizeof u->replaces);
        u->digest_kind = u->run->digest_kind;
        upload_send(u);
    } else {
        upload_conflict(u);
    }
}

static void is_same(struct upload *u, enum verdict_proof proof)
{
    upload_sent(u, u->met_another ? RUN_THERE : RUN_SENT, proof);
}

void upload_look(struct upload *u)
{
    if (++u->restarts > LOOKS_MAX) {
        upload_conflict(u);
        return;
    }
    u->must_look = true;
    upload_begin_again(u);
}

void upload_looked(struct upload *u, const struct lane_answer *a)
{
    u->is_own = a->code == 0 && upload_is_own(u, a);
    memcpy(u->seen, a->tag, sizeof u->seen);
    /* Who may write and not look goes by the condition alone; S3 says so too of what is not there
     * and may not be listed. */
    if (a->code == -ERR_NOT_FOUND || (a->code == -ERR_DENIED && !u->must_look)) {
        upload_send(u);
    } else if (a->code == -ERR_DENIED) {
        upload_conflict(u);
    } else if (a->code < 0) {
        run_file_failed(u, &a->err, a->may_retry);
    } else {
        u->met_another = true;
        if (a->size_bytes != u->size_bytes)
            differs(u);
        else
            upload_hash(u, a);
    }
}

/* ---- by what the store tells ------------------------------------------------------------------------------------- */

/* Of an object in parts only what parts make can be computed: an MD5 of the whole cannot. */
void upload_hash(struct upload *u, const struct lane_answer *a)
{
    bool usable = a->digest.kind != HASH_NONE && (!upload_is_large(u) || hash_combines((enum hash_kind)a->digest.kind));
    u->theirs = usable ? a->digest : (struct digest){0};
    u->theirs_composite = a->composite;
    u->digest_kind = usable                           ? (enum hash_kind)a->digest.kind
                     : a->composite.kind != HASH_NONE ? (enum hash_kind)a->composite.kind
                                                      : u->run->digest_kind;
    u->parts_left = u->part_count;
    u->parts = xrealloc(u->parts, max_u64(u->part_count, 1), sizeof *u->parts);
    if (u->part_count == 0) /* both are empty */
        is_same(u, PROOF_SIZE);
    else
        upload_become(u, UPLOAD_COMPARING);
}

void upload_compared(struct upload *u)
{
    struct lane_answer told = {.digest = u->theirs, .composite = u->theirs_composite};
    struct digest whole = parts_join(u->parts, u->part_count), composite = {0};
    enum verdict_proof proof;
    if (upload_is_large(u))
        composite = parts_composite(u->parts, u->part_count);
    switch (upload_compare(&whole, &composite, &told, &proof)) {
    case MATCH_SAME:
        is_same(u, proof);
        return;
    case MATCH_OTHER:
        differs(u);
        return;
    case MATCH_UNKNOWN:
        upload_read_back(u);
        return;
    }
}

/* ---- reading back ------------------------------------------------------------------------------------------------ */

void upload_read_back(struct upload *u)
{
    u->differs = false;
    u->parts_left = u->part_count;
    if (u->part_count == 0)
        is_same(u, PROOF_SIZE);
    else
        upload_become(u, UPLOAD_READING);
}

void upload_read(struct upload *u)
{
    if (u->differs)
        differs(u);
    else
        is_same(u, PROOF_READ_BACK);
}

void upload_unreadable(struct upload *u)
{
    char why[ERR_TEXT_MAX];
    if (u->may_retry || u->err.code == ERR_CANCELLED) {
        run_file_failed(u, &u->err, u->may_retry);
    } else if (u->met_another) {
        differs(u);
    } else {
        snprintf(why, sizeof why, "the bucket tells no checksum to compare, and reading it back failed: %.200s",
                 u->err.text);
        upload_mistrust(u, 4011, why);
    }
}
