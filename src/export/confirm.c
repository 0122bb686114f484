/* SPDX-License-Identifier: Apache-2.0 */
/* What the store's words about an object mean: that it has our bytes, somebody else's, or that nobody can tell. */
#include "upload.h"
#include "util/str.h"

void upload_conflict(struct upload *u)
{
    struct err err;
    u->met_another = false;
    if (u->run->o.policy->conflict == CONFLICT_VERSION && u->version < KEY_VERSIONS_MAX) {
        u->version++;
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

void upload_sent(struct upload *u, enum run_event how)
{
    u->how = how;
    if (how == RUN_SENT && u->digest_kind == HASH_MD5)
        u->run->digest_kind = HASH_MD5;
    /* Swept before it is recorded as ended: killed in between, the next run inherits it and sweeps again. */
    if (u->must_sweep) {
        upload_become(u, UPLOAD_SWEEPING);
        return;
    }
    upload_ended(u);
    run_file_sent(u, how);
}

static void mistrust(struct upload *u, unsigned id, const char *why)
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

static bool are_our_bytes(const struct upload *u, const struct lane_answer *a)
{
    return a->size_bytes == u->size_bytes && a->digest.kind != HASH_NONE && digest_eq(&a->digest, &u->whole);
}

/* Does what the store says about the object say that it has our bytes? */
void upload_confirm(struct upload *u, const struct lane_answer *a)
{
    bool asked = u->state == UPLOAD_CONFIRMING;
    bool has_digest = a->digest.kind != HASH_NONE && a->digest.kind == u->whole.kind;
    if (are_our_bytes(u, a) || (u->run->size_only && a->size_bytes == u->size_bytes))
        upload_sent(u, RUN_SENT);
    else if (!asked && (!has_digest || digest_eq(&a->digest, &u->whole)))
        upload_become(u, UPLOAD_CONFIRMING);
    else if (a->size_bytes != u->size_bytes)
        mistrust(u, 4022, "the bucket says another size than the file has");
    else if (has_digest && a->digest.kind != HASH_MD5) /* an ETag need not be an MD5 */
        mistrust(u, 4022, "the bucket says another checksum than the file has");
    else
        mistrust(u, 4011, "the bucket tells no checksum to compare, and its ETag is not the MD5 of what was sent");
}

/* The store tells another checksum than ours: then ours by that one, too. */
static bool tells_otherwise(struct upload *u, const struct lane_answer *a)
{
    bool is_other = a->digest.kind != HASH_NONE && a->digest.kind != u->whole.kind;
    if (upload_is_large(u) || a->size_bytes != u->size_bytes || !is_other || u->restarts++ >= 2)
        return false;
    u->digest_kind = a->digest.kind;
    return true;
}

/* The upload is gone, and what it was to become is not there, nor is it what has the name: somebody aborted it. Or what
 * had the name is not there any more. */
static bool is_free_again(const struct upload *u, const struct lane_answer *a)
{
    bool is_another = a->code == 0 && u->vanished && !are_our_bytes(u, a);
    return (a->code == -ERR_NOT_FOUND && (u->multi || u->met_another)) || (is_another && !u->run->size_only);
}

/* The answer to HEAD after a lost, or a short, or an unwelcome answer. */
void upload_confirmed(struct upload *u, const struct lane_answer *a)
{
    if (is_free_again(u, a) && u->restarts++ < 2) {
        u->met_another = false;
        upload_lost(u);
    } else if (a->code == -ERR_NOT_FOUND && u->vanished) {
        upload_vanishes(u, &u->err);
    } else if (a->code == -ERR_NOT_FOUND && !u->met_another) {
        mistrust(u, 4022, "the bucket has taken it, and does not have it");
    } else if (a->code < 0) {
        run_file_failed(u, &a->err, a->may_retry);
    } else if (tells_otherwise(u, a)) {
        upload_begin_again(u);
    } else if (!u->met_another) {
        upload_confirm(u, a);
    } else if (are_our_bytes(u, a)) {
        upload_sent(u, RUN_THERE);
    } else {
        upload_conflict(u);
    }
}
