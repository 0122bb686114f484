/* SPDX-License-Identifier: Apache-2.0 */
/* After a write: does what the store tells of the object prove that it holds our bytes? Where it tells nothing that was
 * computed, the object is read back. */
#include "parts.h"
#include "upload.h"
#include "util/str.h"

enum { PROBE_BYTES_MAX = 1 << 20 };

void upload_conflict(struct upload *u)
{
    struct err err;
    if (u->run->o.policy->conflict == CONFLICT_VERSION && u->version < KEY_VERSIONS_MAX) {
        u->version++;
        u->must_look = false;
        u->restarts = 0;
        u->digest_kind = u->run->digest_kind;
        if (upload_set_key(u, &err) < 0)
            run_file_failed(u, &err, false);
        else
            upload_begin_again(u);
        return;
    }
    err_set(&err, ERR_EXISTS, "%s://%.*s/%s: another object has this name", store_scheme(u->run->o.store),
            STR_FMT(store_bucket(u->run->o.store)), u->key);
    err_advise(&err, 4409, "both are kept; remove one, or set conflict to overwrite or version");
    run_file_failed(u, &err, false);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void finish(struct upload *u)
{
    upload_ended(u);
    run_file_sent(u, u->how);
}

/* The first small object of ours serves to learn whether the store honours conditions. */
static bool may_probe(const struct upload *u)
{
    const struct run *r = u->run;
    return !r->probed && u->how == RUN_SENT && u->file != NO_FILE && u->size_bytes <= PROBE_BYTES_MAX &&
           r->o.policy->conflict != CONFLICT_OVERWRITE && store_wants_probe(r->o.store);
}

void upload_sent(struct upload *u, enum run_event how, enum verdict_proof proof)
{
    u->how = how;
    u->proof = proof;
    if (how == RUN_SENT && u->digest_kind == HASH_MD5)
        u->run->digest_kind = HASH_MD5;
    /* Swept before it is recorded as ended: killed in between, the next run inherits it and sweeps again. */
    if (u->must_sweep) {
        upload_become(u, UPLOAD_SWEEPING);
    } else if (may_probe(u)) {
        u->run->probed = true;
        upload_become(u, UPLOAD_PROBING);
    } else {
        finish(u);
    }
}

/* A probe that failed tells nothing. One that was overwritten by has made another version of the object: it is looked
 * at again. */
void upload_probed(struct upload *u, const struct lane_answer *a)
{
    if (a->code < 0 || !a->rewritten) {
        finish(u);
        return;
    }
    u->proof = PROOF_NONE;
    upload_become(u, UPLOAD_CONFIRMING);
}

void upload_mistrust(struct upload *u, unsigned id, const char *why)
{
    struct err err;
    err_set(&err, ERR_CORRUPT, "%s://%.*s/%s: %s", store_scheme(u->run->o.store),
            STR_FMT(store_bucket(u->run->o.store)), u->key, why);
    err_advise(&err, id, "the file is kept; look at the object, and export again");
    if (u->must_sweep && u->multi) {
        upload_drop(u, AFTER_FAIL, &err);
        return;
    }
    upload_ended(u);
    run_file_failed(u, &err, false);
}

/* ---- what the store told ----------------------------------------------------------------------------------------- */

static enum verdict_proof proof_of(enum hash_kind kind)
{
    static const enum verdict_proof proofs[] = {
        [HASH_CRC32] = PROOF_CRC32, [HASH_CRC32C] = PROOF_CRC32C, [HASH_CRC64NVME] = PROOF_CRC64NVME,
        [HASH_MD5] = PROOF_MD5,     [HASH_SHA256] = PROOF_SHA256,
    };
    return kind == HASH_NONE ? PROOF_NONE : proofs[kind];
}

enum upload_match upload_compare(const struct digest *whole, const struct digest *composite,
                                 const struct lane_answer *a, enum verdict_proof *ret)
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
    /* An ETag need not be an MD5: one that differs proves nothing. */
    bool differs = (has_whole && whole->kind != HASH_MD5) || (has_composite && composite->kind != HASH_MD5);
    return differs ? MATCH_OTHER : MATCH_UNKNOWN;
}

/* The following uploads compute what this store was seen to tell. */
static void learn(struct upload *u, const struct lane_answer *a)
{
    bool is_large = upload_is_large(u);
    enum hash_kind told = (enum hash_kind)a->digest.kind;
    if (is_large && !hash_combines(told))
        told = (enum hash_kind)a->composite.kind;
    if (hash_combines(told) || (is_large && told == HASH_MD5))
        u->run->digest_kind = told;
}

static void compare_otherwise(struct upload *u, const struct lane_answer *a)
{
    bool is_large = upload_is_large(u);
    learn(u, a);
    if (!is_large && a->digest.kind != HASH_NONE && a->digest.kind != u->whole.kind) {
        upload_hash(u, a);
        return;
    }
    u->parts = xrealloc(u->parts, max_u64(u->part_count, 1), sizeof *u->parts);
    u->parts[0] = (struct logbook_part){.size_bytes = u->size_bytes, .digest = u->whole};
    for (unsigned i = 0; is_large && i < u->part_count; i++)
        u->parts[i] = u->multi->parts[i];
    upload_read_back(u);
}

void upload_confirm(struct upload *u, const struct lane_answer *a)
{
    bool asked = u->state == UPLOAD_CONFIRMING, is_sized = a->size_bytes == u->size_bytes;
    enum verdict_proof proof;
    enum upload_match match = upload_compare(&u->whole, &u->composite, a, &proof);
    memcpy(u->seen, a->tag, sizeof u->seen);
    /* Servers that tell an ETag of parts alone may have another one when asked: theirs is the one to record. */
    if (!asked && proof == PROOF_COMPOSITE) {
        u->proof = proof;
        upload_become(u, UPLOAD_CONFIRMING);
        return;
    }
    if (is_sized && match == MATCH_SAME)
        upload_sent(u, RUN_SENT, proof);
    else if (is_sized && match == MATCH_UNKNOWN && asked && u->proof != PROOF_NONE)
        upload_sent(u, RUN_SENT, u->proof);
    else if (is_sized && u->run->size_only)
        upload_sent(u, RUN_SENT, PROOF_SIZE);
    else if (!asked && match != MATCH_OTHER)
        upload_become(u, UPLOAD_CONFIRMING);
    else if (!is_sized)
        upload_mistrust(u, 4022, "the bucket says another size than the file has");
    else if (match == MATCH_OTHER)
        upload_mistrust(u, 4022, "the bucket says another checksum than the file has");
    else
        compare_otherwise(u, a);
}

/* The upload is gone, and the object is not there, or another has its name: another process aborted the upload. */
static bool is_free_again(const struct upload *u, const struct lane_answer *a)
{
    enum verdict_proof proof;
    bool is_ours = a->size_bytes == u->size_bytes && upload_compare(&u->whole, &u->composite, a, &proof) == MATCH_SAME;
    bool is_another = a->code == 0 && u->vanished && !is_ours;
    return (a->code == -ERR_NOT_FOUND && u->multi) || (is_another && !u->run->size_only);
}

void upload_confirmed(struct upload *u, const struct lane_answer *a)
{
    if (is_free_again(u, a) && u->restarts++ < 2)
        upload_lost(u);
    else if (a->code == -ERR_NOT_FOUND && u->vanished)
        upload_vanishes(u, &u->err);
    else if (a->code == -ERR_NOT_FOUND)
        upload_mistrust(u, 4022, "the bucket has taken it, and does not have it");
    else if (a->code < 0)
        run_file_failed(u, &a->err, a->may_retry);
    else
        upload_confirm(u, a);
}
