/* SPDX-License-Identifier: Apache-2.0 */
#include "upload.h"
#include "engine.h"
#include "parts.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* Which step may follow which. */
static const uint16_t allowed[] = {
#define TO(s) (1 << UPLOAD_##s)
    [UPLOAD_NEW] = TO(LOOKING) | TO(CLEANING) | TO(NOTING) | TO(SENDING) | TO(PUTTING) | TO(WITHDRAWING),
    [UPLOAD_LOOKING] = TO(COMPARING) | TO(NOTING) | TO(PUTTING) | TO(NEW) | TO(SWEEPING),
    [UPLOAD_COMPARING] = TO(READING) | TO(NOTING) | TO(PUTTING) | TO(NEW) | TO(SWEEPING) | TO(DROPPING) | TO(PROBING),
    [UPLOAD_READING] = TO(NOTING) | TO(PUTTING) | TO(NEW) | TO(SWEEPING) | TO(DROPPING) | TO(PROBING),
    [UPLOAD_PROBING] = TO(CONFIRMING),
    [UPLOAD_CLEANING] = TO(NEW),
    [UPLOAD_NOTING] = TO(BEGINNING),
    [UPLOAD_BEGINNING] = TO(SENDING) | TO(DROPPING) | TO(NEW),
    [UPLOAD_SENDING] = TO(COMPLETING) | TO(DROPPING) | TO(NEW),
    [UPLOAD_COMPLETING] = TO(CONFIRMING) | TO(DROPPING) | TO(SWEEPING) | TO(READING),
    [UPLOAD_DROPPING] = TO(NEW),
    [UPLOAD_PUTTING] = TO(CONFIRMING) | TO(NEW) | TO(SWEEPING) | TO(PROBING),
    [UPLOAD_CONFIRMING] = TO(DROPPING) | TO(NEW) | TO(SWEEPING) | TO(READING) | TO(COMPARING) | TO(PROBING),
    [UPLOAD_WITHDRAWING] = 0,
    [UPLOAD_SWEEPING] = 0,
#undef TO
};

void upload_become(struct upload *u, enum upload_state next)
{
    assert(u->in_flight == 0 && (allowed[u->state] & 1 << next));
    u->state = next;
    u->failed = false;
    if (next == UPLOAD_COMPARING || next == UPLOAD_SENDING || next == UPLOAD_READING)
        u->next_part = 1;
}

void upload_free(struct upload *u)
{
    if (!u)
        return;
    hold_close(&u->hold);
    free(u->marker_path);
    free(u->key);
    free(u->parts);
    free(u->list);
    free(u);
}

/* An object of ours is replaced under `fail` alone: `version` keeps every version, `overwrite` asks nobody. */
enum store_if upload_condition(const struct upload *u)
{
    if (u->run->o.policy->conflict == CONFLICT_OVERWRITE)
        return STORE_IF_ANY;
    return u->replaces[0] ? STORE_IF_SAME : STORE_IF_ABSENT;
}

bool upload_is_large(const struct upload *u)
{
    return u->size_bytes > KEY_PART_BYTES;
}

void upload_ended(struct upload *u)
{
    if (u->multi)
        logbook_ended(u->run->logbook, u->multi);
    u->multi = NULL;
}

/* ---- how it begins ----------------------------------------------------------------------------------------------- */

int upload_set_key(struct upload *u, struct err *err)
{
    auto_sbuf key;
    sbuf_init(&key, 2 * 4096 + KEY_BYTES_MAX);
    int r = key_make(store_prefix(u->run->o.store), u->path, u->size_bytes, u->version, &key, err);
    if (r < 0)
        return r;
    free(u->key);
    return sbuf_take(&key, &u->key, err);
}

static void flushed(struct disk_job *j);

/* The intent is on disk before the store is asked: an upload that begins, and whose id dies with us, can be swept. */
static void note(struct upload *u)
{
    struct err err;
    struct run *r = u->run;
    int e = logbook_intend(r->logbook, u->path, str_of(u->key), str_of(u->uid), &u->hold.stamp, u->part_bytes,
                           &u->multi, &err);
    if (e < 0) {
        run_file_unrecorded(u, &err);
        return;
    }
    upload_become(u, UPLOAD_NOTING);
    u->in_flight = 1;
    u->flush = (struct disk_job){.op = DISK_FDATASYNC, .fd = logbook_fd(r->logbook), .done = flushed};
    uring_submit(r->o.workers[0].uring, &u->flush);
}

/* From UPLOAD_NEW, with a key and nothing of an earlier upload left. */
static void begin_fresh(struct upload *u)
{
    bool asks = u->run->o.policy->conflict != CONFLICT_OVERWRITE;
    bool was_sent = logbook_tag(u->run->logbook, u->path).len > 0;
    u->replaces[0] = '\0';
    u->is_own = u->met_another = false;
    u->proof = PROOF_NONE;
    if (u->sight != MARKER_NONE)
        upload_become(u, UPLOAD_WITHDRAWING);
    else if (asks && (upload_is_large(u) || was_sent || u->must_look))
        upload_become(u, UPLOAD_LOOKING);
    else
        upload_send(u);
}

void upload_send(struct upload *u)
{
    u->met_another = false;
    if (upload_is_large(u))
        note(u);
    else
        upload_become(u, UPLOAD_PUTTING);
}

void upload_begin_again(struct upload *u)
{
    u->vanished = false;
    upload_become(u, UPLOAD_NEW);
    begin_fresh(u);
}

void upload_lost(struct upload *u)
{
    u->must_sweep |= u->multi != NULL; /* it may be there all the same */
    upload_ended(u);
    upload_begin_again(u);
}

/* Goes on where an earlier run was cut off. Without a part that arrived there is nothing to go on with, nor is it known
 * by which checksum. */
static bool may_go_on(const struct upload *u)
{
    const struct logbook_upload *m = u->multi;
    bool has_parts = false;
    for (unsigned i = 0; i < m->part_count; i++)
        has_parts |= m->parts[i].size_bytes > 0;
    return m->id && has_parts && upload_is_large(u) && stamp_eq(&m->stamp, &u->hold.stamp);
}

static void go_on(struct upload *u)
{
    const struct logbook_upload *m = u->multi;
    free(u->key);
    u->key = str_dup(str_of(m->key));
    u->part_bytes = m->part_bytes;
    u->part_count = u->parts_left = m->part_count;
    for (unsigned i = 0; i < m->part_count; i++)
        if (m->parts[i].size_bytes > 0) {
            u->parts_left--;
            u->digest_kind = m->parts[i].digest.kind;
        }
    upload_become(u, UPLOAD_SENDING);
}

/* Some servers refuse what they do not know, a checksum as well: then the oldest of all, which every one knows. */
static bool may_ask_otherwise(struct upload *u, const struct lane_answer *a)
{
    bool refused = (a->code == -ERR_INVALID || a->code == -ERR_UNSUPPORTED) && !a->may_retry;
    if (!refused || u->digest_kind == HASH_MD5)
        return false;
    u->digest_kind = HASH_MD5;
    return true;
}

void upload_start(struct upload *u)
{
    struct err err;
    u->part_bytes = key_part_bytes(u->size_bytes);
    u->part_count = (unsigned)((u->size_bytes + u->part_bytes - 1) / u->part_bytes);
    if (u->file == NO_FILE && u->multi) {
        upload_become(u, UPLOAD_CLEANING);
        return;
    }
    if (upload_set_key(u, &err) < 0) {
        run_file_failed(u, &err, false);
        return;
    }
    u->multi = logbook_find_upload(u->run->logbook, u->path);
    u->must_sweep = u->multi != NULL;
    if (!u->multi) {
        begin_fresh(u);
    } else if (may_go_on(u)) {
        go_on(u);
    } else {
        upload_become(u, UPLOAD_CLEANING);
    }
}

/* ---- what it asks for -------------------------------------------------------------------------------------------- */

static bool feed_one(struct upload *u, enum lane_op op, uint64_t bytes)
{
    if (u->in_flight > 0)
        return true;
    struct lane *l = run_take_lane(u->run, bytes);
    if (!l)
        return false;
    l->offset = 0;
    l->len = bytes;
    l->object_bytes = u->size_bytes;
    l->parts = u->list;
    l->part_count = upload_is_large(u) ? u->part_count : 0;
    l->whole = u->whole;
    run_use_lane(u, l, op);
    return true;
}

static bool is_confirmed(const struct upload *u, unsigned number)
{
    return u->state == UPLOAD_SENDING && u->multi->parts[number - 1].size_bytes > 0;
}

/* Parts of a file. What is read back from the store needs no slices. */
static bool feed_parts(struct upload *u, enum lane_op op)
{
    for (; u->next_part <= u->part_count && !u->failed; u->next_part++) {
        if (is_confirmed(u, u->next_part))
            continue;
        uint64_t offset = (uint64_t)(u->next_part - 1) * u->part_bytes;
        uint64_t len = min_u64(u->part_bytes, u->size_bytes - offset);
        struct lane *l = run_take_lane(u->run, op == LANE_READ ? 0 : len);
        if (!l)
            return false;
        l->number = u->next_part;
        l->object_bytes = u->size_bytes;
        l->read_kind = op == LANE_READ ? u->parts[l->number - 1].digest.kind : HASH_NONE;
        l->offset = offset;
        l->len = len;
        run_use_lane(u, l, op);
    }
    return true;
}

static void complete(struct upload *u);

bool upload_feed(struct upload *u)
{
    switch (u->state) {
    case UPLOAD_LOOKING:
    case UPLOAD_CONFIRMING:
        return feed_one(u, LANE_HEAD, 0);
    case UPLOAD_CLEANING:
        return feed_one(u, u->may_not_list && u->multi->id ? LANE_ABORT : LANE_SWEEP, 0);
    case UPLOAD_SWEEPING:
        return feed_one(u, LANE_SWEEP, 0);
    case UPLOAD_BEGINNING:
        return feed_one(u, LANE_BEGIN, 0);
    case UPLOAD_COMPLETING:
        return feed_one(u, LANE_COMPLETE, 0);
    case UPLOAD_DROPPING:
        return feed_one(u, u->must_sweep && !u->may_not_list ? LANE_SWEEP : LANE_ABORT, 0);
    case UPLOAD_WITHDRAWING:
        return feed_one(u, u->sight == MARKER_UNSEEN ? LANE_HEAD : LANE_DELETE, 0);
    case UPLOAD_PUTTING:
        return feed_one(u, LANE_PUT, u->size_bytes);
    case UPLOAD_PROBING:
        return feed_one(u, LANE_PROBE, u->size_bytes);
    case UPLOAD_COMPARING:
        return feed_parts(u, LANE_HASH);
    case UPLOAD_READING:
        return feed_parts(u, LANE_READ);
    case UPLOAD_SENDING:
        if (u->parts_left == 0 && u->in_flight == 0) { /* a former run got that far */
            complete(u);
            return upload_feed(u);
        }
        return feed_parts(u, LANE_PART);
    default:
        return true;
    }
}

/* ---- how it ends ------------------------------------------------------------------------------------------------- */

void upload_drop(struct upload *u, enum upload_after after, const struct err *why)
{
    u->err = *why;
    u->after = after;
    upload_become(u, UPLOAD_DROPPING);
}

void upload_vanishes(struct upload *u, const struct err *why)
{
    struct err err = *why;
    err_advise(&err, 4012, "kept; its uploads vanish: see what else aborts them (a lifecycle rule, another export)");
    upload_drop(u, AFTER_FAIL, &err);
}

/* ---- small files ------------------------------------------------------------------------------------------------- */

static void put_done(struct upload *u, const struct lane *l)
{
    const struct lane_answer *a = &l->answer;
    u->whole = l->digest;
    u->composite = (struct digest){0};
    u->guard = a->guard;
    if (a->code == 0) {
        upload_confirm(u, a);
    } else if (a->code == -ERR_CHANGED) {
        run_file_waits(u, 0, a->err.text);
    } else if (a->code == -ERR_EXISTS) {
        upload_look(u);
    } else if (may_ask_otherwise(u, a)) {
        upload_begin_again(u);
    } else {
        run_file_failed(u, &a->err, a->may_retry);
    }
}

/* ---- large files ------------------------------------------------------------------------------------------------- */

static void flushed(struct disk_job *j)
{
    struct upload *u = container_of(j, struct upload, flush);
    struct err err;
    struct run *r = u->run;
    u->in_flight = 0;
    if (j->result < 0) {
        err_sys(&err, (int)-j->result, "cannot flush the logbook of the export");
        upload_ended(u);
        run_file_unrecorded(u, &err);
    } else {
        upload_become(u, UPLOAD_BEGINNING);
    }
    run_again(r);
}

/* Was nothing begun, for certain? An answer that was lost, or that nobody can read, may have been a yes. */
static bool was_refused(const struct lane_answer *a)
{
    return !a->may_retry && a->requests <= 1 && a->code != -ERR_CANCELLED && a->code != -ERR_CORRUPT;
}

/* Left as it is, for the next run. A store whose answer nobody can read does answer: what it has of us goes at once. */
static bool is_passing(const struct lane_answer *a)
{
    return (a->may_retry && a->code != -ERR_CORRUPT) || a->code == -ERR_CANCELLED;
}

/* There may be an upload that we know nothing of: it is swept now, or, where the store does not answer, by the next
 * run, which finds the intent. */
static void not_begun(struct upload *u, const struct lane_answer *a)
{
    if (was_refused(a) && !u->must_sweep) {
        upload_ended(u);
        run_file_failed(u, &a->err, false);
    } else if (is_passing(a)) {
        run_file_failed(u, &a->err, a->may_retry);
    } else {
        u->must_sweep = true;
        upload_drop(u, AFTER_FAIL, &a->err);
    }
}

static void began(struct upload *u, const struct lane_answer *a)
{
    struct err err;
    u->must_sweep |= a->requests > 1; /* an answer that was lost held the id of another */
    if (may_ask_otherwise(u, a)) {
        upload_ended(u);
        upload_begin_again(u);
    } else if (a->code < 0) {
        not_begun(u, a);
    } else if (logbook_begun(u->run->logbook, u->multi, str_of(a->id), &err) < 0) {
        run_file_unrecorded(u, &err);
    } else {
        u->parts_left = u->part_count;
        upload_become(u, UPLOAD_SENDING);
    }
}

static void complete(struct upload *u)
{
    struct err err;
    if (hold_check(&u->hold, &err) < 0) {
        upload_drop(u, AFTER_WAIT, &err);
        return;
    }
    const struct logbook_part *parts = u->multi->parts;
    u->list = xrealloc(u->list, u->part_count, sizeof *u->list);
    for (unsigned i = 0; i < u->part_count; i++)
        u->list[i] = (struct store_part){.number = i + 1,
                                         .etag = str_of(parts[i].etag),
                                         .digest = parts[i].digest,
                                         .size_bytes = parts[i].size_bytes};
    u->whole = parts_join(parts, u->part_count);
    u->composite = parts_composite(parts, u->part_count);
    upload_become(u, UPLOAD_COMPLETING);
}

/* Everything that was in flight is back, and something of it had failed. */
static void parts_failed(struct upload *u)
{
    enum err_code code = u->err.code;
    if (u->state == UPLOAD_READING)
        upload_unreadable(u);
    else if (code == ERR_CHANGED && u->state == UPLOAD_COMPARING)
        run_file_waits(u, 0, u->err.text);
    else if (code == ERR_CHANGED)
        upload_drop(u, AFTER_WAIT, &u->err);
    else if (code == ERR_NOT_FOUND && u->state == UPLOAD_SENDING && u->restarts++ < 2)
        upload_lost(u);
    else if (code == ERR_NOT_FOUND && u->state == UPLOAD_SENDING)
        upload_vanishes(u, &u->err);
    else if (u->may_retry || u->state == UPLOAD_COMPARING || code == ERR_CANCELLED)
        run_file_failed(u, &u->err, u->may_retry); /* its parts stay, for the next run */
    else
        upload_drop(u, AFTER_FAIL, &u->err);
}

static void parts_done(struct upload *u)
{
    if (u->state == UPLOAD_SENDING)
        complete(u);
    else if (u->state == UPLOAD_COMPARING)
        upload_compared(u);
    else
        upload_read(u);
}

static void part_back(struct upload *u, const struct lane *l)
{
    const struct lane_answer *a = &l->answer;
    struct logbook_part part = {.size_bytes = l->len, .digest = l->digest};
    struct err err = a->err;
    int code = a->code;
    snprintf(part.etag, sizeof part.etag, "%s", a->etag);
    if (code == 0 && u->state == UPLOAD_SENDING) {
        code = logbook_part(u->run->logbook, u->multi, l->number, &part, &err);
        u->run->gave_up |= code < 0;
    } else if (code == 0 && u->state == UPLOAD_READING)
        u->differs |= !digest_eq(&a->digest, &u->parts[l->number - 1].digest);
    else if (code == 0)
        u->parts[l->number - 1] = part;
    if (code == 0)
        u->parts_left--;
    if (code < 0 && !u->failed) {
        u->failed = true;
        u->err = err;
        u->may_retry = a->may_retry;
    }
    if (u->in_flight == 0 && u->failed)
        parts_failed(u);
    else if (u->in_flight == 0 && u->parts_left == 0)
        parts_done(u);
}

static void completed(struct upload *u, const struct lane_answer *a)
{
    u->must_sweep |= a->requests > 1; /* it met its own object, and left the upload as it was */
    u->guard = a->guard;
    if (a->code == 0) {
        upload_confirm(u, a);
    } else if (a->code == -ERR_EXISTS) {
        upload_drop(u, AFTER_LOOK, &a->err);
    } else if (a->code == -ERR_NOT_FOUND) {
        u->vanished = true;
        u->err = a->err;
        upload_become(u, UPLOAD_CONFIRMING);
    } else if (is_passing(a)) {
        run_file_failed(u, &a->err, a->may_retry);
    } else {
        upload_drop(u, AFTER_FAIL, &a->err);
    }
}

/* Who may not list the uploads of a key, or whose store cannot, may abort the one whose id it has. */
static bool falls_back(struct upload *u, const struct lane_answer *a)
{
    if (u->may_not_list || !u->multi->id || (a->code != -ERR_DENIED && a->code != -ERR_UNSUPPORTED))
        return false;
    u->may_not_list = true;
    return true;
}

static void dropped(struct upload *u, const struct lane_answer *a)
{
    struct err err = u->err;
    if (u->must_sweep && falls_back(u, a))
        return;
    if (a->code < 0 && a->code != -ERR_NOT_FOUND && a->code != -ERR_DENIED) {
        /* The logbook keeps it: the next run tries again. What made it fail says more than what it leaves. */
        bool has_failed = u->after == AFTER_FAIL && a->code != -ERR_CANCELLED;
        run_file_failed(u, has_failed ? &err : &a->err, a->may_retry);
        return;
    }
    upload_ended(u);
    if (u->after == AFTER_WAIT) {
        run_file_waits(u, 0, err.text);
    } else if (u->after == AFTER_LOOK) {
        upload_look(u);
    } else {
        run_file_failed(u, &err, false);
    }
}

static void cleaned(struct upload *u, const struct lane_answer *a)
{
    bool is_chore = u->file == NO_FILE && u->group == SIZE_MAX, gone = a->code == 0 || a->code == -ERR_NOT_FOUND;
    if (falls_back(u, a))
        return;
    /* Who may not clean up sends the file all the same:
     * what is left of the old upload is for the bucket's own rules. */
    gone |= !is_chore && (a->code == -ERR_DENIED || a->code == -ERR_UNSUPPORTED);
    if (gone)
        upload_ended(u);
    if (is_chore)
        run_file_left(u);
    else if (gone)
        upload_begin_again(u);
    else
        run_file_failed(u, &a->err, a->may_retry);
}

/* The object is there, whatever came of it. What could not be swept now stays in the logbook, for the next run. */
static void swept(struct upload *u, const struct lane_answer *a)
{
    bool is_hopeless = a->code == -ERR_DENIED || a->code == -ERR_UNSUPPORTED || a->code == -ERR_NOT_FOUND;
    if (a->code == 0 || is_hopeless)
        upload_ended(u);
    run_file_sent(u, u->how);
}

void upload_answer(struct upload *u, const struct lane *l)
{
    u->in_flight--;
    switch (u->state) {
    case UPLOAD_LOOKING:
        upload_looked(u, &l->answer);
        return;
    case UPLOAD_WITHDRAWING:
        checkpoint_answer(u, &l->answer);
        return;
    case UPLOAD_CLEANING:
        cleaned(u, &l->answer);
        return;
    case UPLOAD_BEGINNING:
        began(u, &l->answer);
        return;
    case UPLOAD_PROBING:
        upload_probed(u, &l->answer);
        return;
    case UPLOAD_COMPARING:
    case UPLOAD_READING:
    case UPLOAD_SENDING:
        part_back(u, l);
        return;
    case UPLOAD_COMPLETING:
        completed(u, &l->answer);
        return;
    case UPLOAD_DROPPING:
        dropped(u, &l->answer);
        return;
    case UPLOAD_PUTTING:
        put_done(u, l);
        return;
    case UPLOAD_CONFIRMING:
        upload_confirmed(u, &l->answer);
        return;
    case UPLOAD_SWEEPING:
        swept(u, &l->answer);
        return;
    default:
        assert(!"an answer that nobody asked for");
    }
}
