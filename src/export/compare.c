/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the file with an object that has its key already: did this volume write it, and does it have the file's
 * bytes? Reads the object back where the store returns nothing comparable. */
#include "engine.h"
#include "util/str.h"
#include <inttypes.h>
#include <stdio.h>

enum { LOOKS_MAX = 3 };

/* ---- who wrote the object ---------------------------------------------------------------------------------------- */

/* An object is this volume's or directory's if its metadata has our identity; if the store keeps no metadata, if it
 * has the recorded tag. Some servers keep the metadata of an object that another writer replaces, so the metadata
 * also has the size and the upload. The recorded upload must have the recorded tag; another upload was left
 * unrecorded by a kill. */
bool upload_is_own(const struct upload *u, const struct transfer_answer *a)
{
    const struct export_run *r = u->run;
    const struct stamp *sent = logbook_stamp(r->logbook, u->path);
    char mine[OWNER_TEXT_MAX], uid[LOGBOOK_UID_MAX] = "";
    struct str tag = logbook_tag(r->logbook, u->path), stored = str_of(a->owner);
    bool is_recorded = tag.len > 0 && str_eq(tag, str_of(a->tag));
    if (r->o.policy->conflict != CONFLICT_FAIL || u->version > 1)
        return false;
    int n = snprintf(mine, sizeof mine, "%s-%" PRIu64 "-", r->o.owner, a->size_bytes);
    if (stored.len == 0 || !str_starts(stored, (struct str){mine, (size_t)n}))
        return stored.len == 0 && is_recorded;
    if (sent)
        run_make_uid(u->path, sent, uid);
    return is_recorded || tag.len == 0 || !str_eq(str_from(stored, (size_t)n), str_of(uid));
}

/* The object has other bytes than the file. */
static void differs(struct upload *u)
{
    struct err err;
    if (!u->object.met_another) {
        upload_mistrust(u, CIS_UPLOAD_DIFFERS, "the bucket has other bytes than the file");
    } else if (u->object.is_own && checkpoint_is_others(u)) {
        err_fail(&err, ERR_EXISTS, CIS_OBJECT_NOT_OURS,
                 "another writer wrote the marker of its checkpoint in the bucket");
        run_file_failed(u, &err);
    } else if (u->object.is_own) {
        memcpy(u->object.replaces, u->object.seen, sizeof u->object.replaces);
        u->sum.kind = u->run->store.digest_kind;
        upload_send(u);
    } else {
        upload_conflict(u);
    }
}

static void is_same(struct upload *u, enum verdict_proof proof)
{
    upload_sent(u, u->object.met_another ? RUN_THERE : RUN_SENT, proof);
}

void upload_look(struct upload *u)
{
    if (++u->restarts > LOOKS_MAX) {
        upload_conflict(u);
        return;
    }
    u->object.must_look = true;
    upload_begin_again(u);
}

void upload_looked(struct upload *u, const struct transfer_answer *a)
{
    u->object.is_own = a->code == 0 && upload_is_own(u, a);
    memcpy(u->object.seen, a->tag, sizeof u->object.seen);
    /* A denied HEAD, before a condition failed: the condition alone decides. S3 also denies it for a missing object
     * without list permission. */
    if (a->code == -ERR_NOT_FOUND || (a->code == -ERR_DENIED && !u->object.must_look)) {
        upload_send(u);
    } else if (a->code == -ERR_DENIED) {
        upload_conflict(u);
    } else if (a->code < 0) {
        run_file_failed(u, &a->err);
    } else {
        u->object.met_another = true;
        if (a->size_bytes != u->size_bytes)
            differs(u);
        else
            upload_hash(u, a);
    }
}

/* ---- comparing checksums ----------------------------------------------------------------------------------------- */

/* For an object in parts, only digests that combine can be computed: not an MD5 of the whole. */
void upload_hash(struct upload *u, const struct transfer_answer *a)
{
    bool usable = a->digest.kind != HASH_NONE && (!upload_is_large(u) || hash_combines((enum hash_kind)a->digest.kind));
    u->sum.theirs = usable ? a->digest : (struct digest){0};
    u->sum.theirs_composite = a->composite;
    u->sum.kind = usable                           ? (enum hash_kind)a->digest.kind
                  : a->composite.kind != HASH_NONE ? (enum hash_kind)a->composite.kind
                                                   : u->run->store.digest_kind;
    u->part.left = u->part.count;
    u->part.sums = xrealloc(u->part.sums, max_u64(u->part.count, 1), sizeof *u->part.sums);
    if (u->part.count == 0) /* both are empty */
        is_same(u, PROOF_SIZE);
    else
        upload_become(u, UPLOAD_COMPARING);
}

void upload_compared(struct upload *u)
{
    struct transfer_answer stored = {.digest = u->sum.theirs, .composite = u->sum.theirs_composite};
    struct digest whole = parts_join(u->part.sums, u->part.count), composite = {0};
    enum verdict_proof proof;
    if (upload_is_large(u))
        composite = parts_composite(u->part.sums, u->part.count);
    switch (upload_compare(&whole, &composite, &stored, &proof)) {
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
    u->object.differs = false;
    u->part.left = u->part.count;
    if (u->part.count == 0)
        is_same(u, PROOF_SIZE);
    else
        upload_become(u, UPLOAD_READING);
}

void upload_read(struct upload *u)
{
    if (u->object.differs)
        differs(u);
    else
        is_same(u, PROOF_READ_BACK);
}

void upload_unreadable(struct upload *u)
{
    char why[ERR_TEXT_MAX];
    if (u->may_retry || u->err.code == ERR_CANCELLED) {
        run_file_failed(u, &u->err);
    } else if (u->object.met_another) {
        differs(u);
    } else {
        snprintf(why, sizeof why,
                 "the bucket returns no comparable checksum, and reading the object back failed: %.200s", u->err.text);
        upload_mistrust(u, CIS_CHECKSUM_UNAVAILABLE, why);
    }
}
