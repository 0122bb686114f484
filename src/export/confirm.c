/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that the bucket has the file's bytes, after a write or for an object that existed before. Compares with
 * the store's checksums. If the store has none, reads the object back. */
#include "private.h"
#include <inttypes.h>
#include <stdio.h>

enum { LOOKS_MAX = 3, PROBE_BYTES_MAX = 1 << 20 };

/* ---- results of a comparison ------------------------------------------------------------------------------------- */

static void upload_conflict(struct upload *u)
{
    struct err err;
    if (u->run->o.policy->conflict == CONFLICT_VERSION && u->version < KEY_VERSIONS_MAX) {
        u->version++;
        u->object.needs_head = false;
        u->restarts = 0;
        u->sum.kind = u->run->store.digest_kind;
        if (upload_set_key(u, &err) < 0)
            run_file_failed(u, &err);
        else
            upload_begin_again(u);
        return;
    }
    err_fail(&err, ERR_EXISTS, CIS_OBJECT_NOT_OURS, "%s://%.*s/%s: another object has this key",
             store_scheme(u->run->o.store), STR_FMT(store_bucket(u->run->o.store)), u->key);
    run_file_failed(u, &err);
}

static void upload_mistrust(struct upload *u, enum err_id id, const char *why)
{
    struct err err;
    err_set(&err, ERR_CORRUPT, "%s://%.*s/%s: %s", store_scheme(u->run->o.store),
            STR_FMT(store_bucket(u->run->o.store)), u->key, why);
    err_advise_by_id(&err, id);
    if (u->must_sweep && u->multi) {
        upload_drop(u, AFTER_FAIL, &err);
        return;
    }
    upload_ended(u);
    run_file_failed(u, &err);
}

static void finish(struct upload *u)
{
    upload_ended(u);
    run_file_sent(u, u->how);
}

/* The first small object of a run is used to test whether the store honours conditions. */
static bool may_probe(const struct upload *u)
{
    const struct export_run *r = u->run;
    return !r->store.probed && u->how == RUN_SENT && u->file != NO_FILE && u->size_bytes <= PROBE_BYTES_MAX &&
           r->o.policy->conflict != CONFLICT_OVERWRITE && store_wants_probe(r->o.store);
}

static void upload_sent(struct upload *u, enum run_event how, enum verdict_proof proof)
{
    u->how = how;
    u->object.proof = proof;
    if (how == RUN_SENT && u->sum.kind == HASH_MD5)
        u->run->store.digest_kind = HASH_MD5;
    /* Swept before the end of the upload is recorded: if this process is killed in between, the next run sweeps
     * again. */
    if (u->must_sweep) {
        upload_become(u, UPLOAD_SWEEPING);
    } else if (may_probe(u)) {
        u->run->store.probed = true;
        upload_become(u, UPLOAD_PROBING);
    } else {
        finish(u);
    }
}

static void is_same(struct upload *u, enum verdict_proof proof)
{
    upload_sent(u, u->object.existed_before ? RUN_THERE : RUN_SENT, proof);
}

/* The object is this volume's or directory's if its metadata has our identity. If the store keeps no metadata, the
 * tag must be the recorded one. Some servers keep the metadata of an object that another writer replaces, so the
 * metadata also has the size and the idempotency token. A recorded upload must have the recorded tag; a kill may
 * leave another upload unrecorded. */
bool upload_is_own(const struct upload *u, const struct transfer_answer *a)
{
    const struct export_run *r = u->run;
    const struct stamp *sent = logbook_stamp(r->logbook, u->path);
    char mine[OWNER_TEXT_MAX], token[LOGBOOK_TOKEN_MAX] = "";
    struct str tag = logbook_tag(r->logbook, u->path), stored = str_of(a->owner);
    bool is_recorded = tag.len > 0 && str_eq(tag, str_of(a->tag));
    if (r->o.policy->conflict != CONFLICT_FAIL || u->version > 1)
        return false;
    int n = snprintf(mine, sizeof mine, "%s-%" PRIu64 "-", r->o.owner, a->size_bytes);
    if (stored.len == 0 || !str_starts(stored, (struct str){mine, (size_t)n}))
        return stored.len == 0 && is_recorded;
    if (sent)
        run_make_token(u->path, sent, token);
    return is_recorded || tag.len == 0 || !str_eq(str_from(stored, (size_t)n), str_of(token));
}

/* The object's bytes differ from the file's. */
static void differs(struct upload *u)
{
    struct err err;
    if (!u->object.existed_before) {
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

/* ---- comparing checksums ----------------------------------------------------------------------------------------- */

enum upload_match { MATCH_SAME, MATCH_OTHER, MATCH_UNKNOWN };

/* Compares our digests with those that the store returned. */
static enum verdict_proof proof_of(enum hash_kind kind)
{
    static const enum verdict_proof proofs[] = {
        [HASH_CRC32] = PROOF_CRC32, [HASH_CRC32C] = PROOF_CRC32C, [HASH_CRC64NVME] = PROOF_CRC64NVME,
        [HASH_MD5] = PROOF_MD5,     [HASH_SHA256] = PROOF_SHA256,
    };
    return kind == HASH_NONE ? PROOF_NONE : proofs[kind];
}

static enum upload_match upload_compare(const struct digest *whole, const struct digest *composite,
                                        const struct transfer_answer *a, enum verdict_proof *ret)
{
    bool has_whole = a->digest.kind != HASH_NONE && a->digest.kind == whole->kind;
    bool has_composite = a->composite.kind != HASH_NONE && a->composite.kind == composite->kind;
    *ret = PROOF_NONE;
    if (has_whole && digest_eq(&a->digest, whole)) {
        *ret = proof_of((enum hash_kind)whole->kind);
        return MATCH_SAME;
    }
    if (has_composite && digest_eq(&a->composite, composite)) {
        *ret = PROOF_COMPOSITE;
        return MATCH_SAME;
    }
    /* An ETag need not be an MD5: a different ETag proves nothing. */
    bool differs = (has_whole && whole->kind != HASH_MD5) || (has_composite && composite->kind != HASH_MD5);
    return differs ? MATCH_OTHER : MATCH_UNKNOWN;
}

static void upload_read_back(struct upload *u)
{
    u->object.differs = false;
    u->part.left = u->part.count;
    if (u->part.count == 0)
        is_same(u, PROOF_SIZE);
    else
        upload_become(u, UPLOAD_READING);
}

/* For an object in parts, only digests that combine can be computed: not an MD5 of the whole. */
static void upload_hash(struct upload *u, const struct transfer_answer *a)
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
    } else if (u->object.existed_before) {
        differs(u);
    } else {
        snprintf(why, sizeof why,
                 "the bucket returns no comparable checksum, and reading the object back failed: %.200s", u->err.text);
        upload_mistrust(u, CIS_CHECKSUM_UNAVAILABLE, why);
    }
}

/* ---- an object that is there ------------------------------------------------------------------------------------- */

void upload_look(struct upload *u)
{
    if (++u->restarts > LOOKS_MAX) {
        upload_conflict(u);
        return;
    }
    u->object.needs_head = true;
    upload_begin_again(u);
}

void upload_looked(struct upload *u, const struct transfer_answer *a)
{
    u->object.is_own = a->code == 0 && upload_is_own(u, a);
    memcpy(u->object.seen, a->tag, sizeof u->object.seen);
    /* HEAD was denied before a condition failed: the condition alone decides. S3 also denies HEAD on a missing
     * object to callers without list permission. */
    if (a->code == -ERR_NOT_FOUND || (a->code == -ERR_DENIED && !u->object.needs_head)) {
        upload_send(u);
    } else if (a->code == -ERR_DENIED) {
        upload_conflict(u);
    } else if (a->code < 0) {
        run_file_failed(u, &a->err);
    } else {
        u->object.existed_before = true;
        if (a->size_bytes != u->size_bytes)
            differs(u);
        else
            upload_hash(u, a);
    }
}

/* ---- an object that was written ---------------------------------------------------------------------------------- */

/* Later uploads compute the kind of checksum that this store returned. */
static void learn(struct upload *u, const struct transfer_answer *a)
{
    bool is_large = upload_is_large(u);
    enum hash_kind confirmed_kind = (enum hash_kind)a->digest.kind;
    if (is_large && !hash_combines(confirmed_kind))
        confirmed_kind = (enum hash_kind)a->composite.kind;
    if (hash_combines(confirmed_kind) || (is_large && confirmed_kind == HASH_MD5))
        u->run->store.digest_kind = confirmed_kind;
}

static void compare_otherwise(struct upload *u, const struct transfer_answer *a)
{
    bool is_large = upload_is_large(u);
    learn(u, a);
    if (!is_large && a->digest.kind != HASH_NONE && a->digest.kind != u->sum.whole.kind) {
        upload_hash(u, a);
        return;
    }
    u->part.sums = xrealloc(u->part.sums, max_u64(u->part.count, 1), sizeof *u->part.sums);
    u->part.sums[0] = (struct logbook_part){.size_bytes = u->size_bytes, .digest = u->sum.whole};
    for (unsigned i = 0; is_large && i < u->part.count; i++)
        u->part.sums[i] = u->multi->parts[i];
    upload_read_back(u);
}

void upload_confirm(struct upload *u, const struct transfer_answer *a)
{
    bool asked = u->state == UPLOAD_CONFIRMING, is_sized = a->size_bytes == u->size_bytes;
    enum verdict_proof proof;
    enum upload_match match = upload_compare(&u->sum.whole, &u->sum.composite, a, &proof);
    memcpy(u->object.seen, a->tag, sizeof u->object.seen);
    /* Servers that return only an ETag of parts may return another one to HEAD: record that one. */
    if (!asked && proof == PROOF_COMPOSITE) {
        u->object.proof = proof;
        upload_become(u, UPLOAD_CONFIRMING);
        return;
    }
    if (is_sized && match == MATCH_SAME)
        upload_sent(u, RUN_SENT, proof);
    else if (is_sized && match == MATCH_UNKNOWN && asked && u->object.proof != PROOF_NONE)
        upload_sent(u, RUN_SENT, u->object.proof);
    else if (is_sized && u->run->store.size_only)
        upload_sent(u, RUN_SENT, PROOF_SIZE);
    else if (!asked && match != MATCH_OTHER)
        upload_become(u, UPLOAD_CONFIRMING);
    else if (!is_sized)
        upload_mistrust(u, CIS_UPLOAD_DIFFERS, "the bucket reports another size than the file has");
    else if (match == MATCH_OTHER)
        upload_mistrust(u, CIS_UPLOAD_DIFFERS, "the bucket reports another checksum than the file has");
    else
        compare_otherwise(u, a);
}

/* A failed probe proves nothing. A probe that overwrote the object made another version of it: confirm that one. */
void upload_probed(struct upload *u, const struct transfer_answer *a)
{
    if (a->code < 0 || !a->rewritten) {
        finish(u);
        return;
    }
    u->object.proof = PROOF_NONE;
    upload_become(u, UPLOAD_CONFIRMING);
}

/* The upload ID is gone, and the object is missing or has another writer: another process aborted the upload. */
static bool is_free_again(const struct upload *u, const struct transfer_answer *a)
{
    enum verdict_proof proof;
    bool is_ours =
        a->size_bytes == u->size_bytes && upload_compare(&u->sum.whole, &u->sum.composite, a, &proof) == MATCH_SAME;
    bool is_another = a->code == 0 && u->vanished && !is_ours;
    return (a->code == -ERR_NOT_FOUND && u->multi) || (is_another && !u->run->store.size_only);
}

void upload_confirmed(struct upload *u, const struct transfer_answer *a)
{
    if (is_free_again(u, a) && u->restarts++ < 2)
        upload_lost(u);
    else if (a->code == -ERR_NOT_FOUND && u->vanished)
        upload_vanishes(u, &u->err);
    else if (a->code == -ERR_NOT_FOUND)
        upload_mistrust(u, CIS_UPLOAD_DIFFERS, "the bucket accepted it, and does not have it");
    else if (a->code < 0)
        run_file_failed(u, &a->err);
    else
        upload_confirm(u, a);
}
