/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the request of each state, and chooses the next state by the answer. */
#include "private.h"
#include <assert.h>
#include <stdio.h>

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool feed_one(struct upload *u, enum transfer_op op, uint64_t bytes)
{
    if (u->in_flight > 0)
        return true;
    struct transfer *l = run_take_transfer(u->run, bytes);
    if (!l)
        return false;
    l->request = (struct transfer_request){
        .op = op,
        .len = bytes,
        .object_bytes = u->size_bytes,
        .parts = {u->part.list, upload_is_large(u) ? u->part.count : 0, u->sum.whole},
    };
    run_start_transfer(u, l);
    return true;
}

static bool is_confirmed(const struct upload *u, unsigned number)
{
    return u->state == UPLOAD_SENDING && u->multi->parts[number - 1].size_bytes > 0;
}

/* Starts transfers of parts. Reading back needs no slices. */
static bool feed_parts(struct upload *u, enum transfer_op op)
{
    for (; u->part.next <= u->part.count && !u->failed; u->part.next++) {
        if (is_confirmed(u, u->part.next))
            continue;
        uint64_t offset = (uint64_t)(u->part.next - 1) * u->part.bytes;
        uint64_t len = min_u64(u->part.bytes, u->size_bytes - offset);
        struct transfer *l = run_take_transfer(u->run, op == TRANSFER_READ ? 0 : len);
        if (!l)
            return false;
        l->request = (struct transfer_request){
            .op = op,
            .number = u->part.next,
            .offset = offset,
            .len = len,
            .object_bytes = u->size_bytes,
            .read_kind = op == TRANSFER_READ ? u->part.sums[u->part.next - 1].digest.kind : HASH_NONE,
        };
        run_start_transfer(u, l);
    }
    return true;
}

static void complete(struct upload *u)
{
    struct err err;
    if (file_lease_check(&u->lease, &err) < 0) {
        upload_drop(u, AFTER_WAIT, &err);
        return;
    }
    const struct logbook_part *parts = u->multi->parts;
    u->part.list = xrealloc(u->part.list, u->part.count, sizeof *u->part.list);
    for (unsigned i = 0; i < u->part.count; i++)
        u->part.list[i] = (struct store_part){.number = i + 1,
                                              .etag = str_of(parts[i].etag),
                                              .digest = parts[i].digest,
                                              .size_bytes = parts[i].size_bytes};
    u->sum.whole = parts_join(parts, u->part.count);
    u->sum.composite = parts_composite(parts, u->part.count);
    upload_become(u, UPLOAD_COMPLETING);
}

bool upload_feed(struct upload *u)
{
    switch (u->state) {
    case UPLOAD_LOOKING:
    case UPLOAD_CONFIRMING:
        return feed_one(u, TRANSFER_HEAD, 0);
    case UPLOAD_CLEANING:
        return feed_one(u, u->may_not_list && u->multi->upload_id ? TRANSFER_ABORT : TRANSFER_SWEEP, 0);
    case UPLOAD_SWEEPING:
        return feed_one(u, TRANSFER_SWEEP, 0);
    case UPLOAD_BEGINNING:
        return feed_one(u, TRANSFER_BEGIN, 0);
    case UPLOAD_COMPLETING:
        return feed_one(u, TRANSFER_COMPLETE, 0);
    case UPLOAD_DROPPING:
        return feed_one(u, u->must_sweep && !u->may_not_list ? TRANSFER_SWEEP : TRANSFER_ABORT, 0);
    case UPLOAD_WITHDRAWING:
        return feed_one(u, u->old_marker == MARKER_UNSEEN ? TRANSFER_HEAD : TRANSFER_DELETE, 0);
    case UPLOAD_PUTTING:
        return feed_one(u, TRANSFER_PUT, u->size_bytes);
    case UPLOAD_PROBING:
        return feed_one(u, TRANSFER_PROBE, u->size_bytes);
    case UPLOAD_COMPARING:
        return feed_parts(u, TRANSFER_HASH);
    case UPLOAD_READING:
        return feed_parts(u, TRANSFER_READ);
    case UPLOAD_SENDING:
        if (u->part.left == 0 && u->in_flight == 0) { /* a former run got that far */
            complete(u);
            return upload_feed(u);
        }
        return feed_parts(u, TRANSFER_PART);
    default:
        return true;
    }
}

/* ---- small files ------------------------------------------------------------------------------------------------- */

/* Some servers refuse unknown checksums: retry with MD5, which every server supports. */
static bool may_ask_otherwise(struct upload *u, const struct transfer_answer *a)
{
    bool refused = (a->code == -ERR_INVALID || a->code == -ERR_UNSUPPORTED) && !a->may_retry &&
                   err_kind_of(a->err.id) != ERR_KIND_UNREACHABLE;
    if (!refused || u->sum.kind == HASH_MD5)
        return false;
    u->sum.kind = HASH_MD5;
    return true;
}

static void put_done(struct upload *u, const struct transfer_answer *a)
{
    const struct transfer *l = container_of(a, struct transfer, answer);
    u->sum.whole = l->digest;
    u->sum.composite = (struct digest){0};
    u->object.guard = a->guard;
    if (a->code == 0) {
        upload_confirm(u, a);
    } else if (a->code == -ERR_CHANGED) {
        run_file_waits(u, 0, a->err.text);
    } else if (a->code == -ERR_EXISTS) {
        upload_look(u);
    } else if (may_ask_otherwise(u, a)) {
        upload_begin_again(u);
    } else {
        run_file_failed(u, &a->err);
    }
}

/* ---- large files ------------------------------------------------------------------------------------------------- */

/* Is it certain that no upload was begun? After a lost or unreadable answer the upload may exist. */
static bool was_refused(const struct transfer_answer *a)
{
    return !a->may_retry && a->requests <= 1 && a->code != -ERR_CANCELLED && a->code != -ERR_CORRUPT;
}

/* Leave the upload to the next run. If the store sends unreadable answers it can be reached: abort the upload now. */
static bool is_passing(const struct transfer_answer *a)
{
    return (a->may_retry && a->code != -ERR_CORRUPT) || a->code == -ERR_CANCELLED;
}

/* An unknown upload may exist: sweep it now, or, if the store does not answer, leave the intent to the next run. */
static void not_begun(struct upload *u, const struct transfer_answer *a)
{
    if (was_refused(a) && !u->must_sweep) {
        upload_ended(u);
        run_file_failed(u, &a->err);
    } else if (is_passing(a)) {
        run_file_failed(u, &a->err);
    } else {
        u->must_sweep = true;
        upload_drop(u, AFTER_FAIL, &a->err);
    }
}

static void began(struct upload *u, const struct transfer_answer *a)
{
    struct err err;
    u->must_sweep |= a->requests > 1; /* a lost answer had the ID of another upload */
    if (may_ask_otherwise(u, a)) {
        upload_ended(u);
        upload_begin_again(u);
    } else if (a->code < 0) {
        not_begun(u, a);
    } else if (logbook_begun(u->run->logbook, u->multi, str_of(a->upload_id), &err) < 0) {
        run_file_unrecorded(u, &err);
    } else {
        u->part.left = u->part.count;
        upload_become(u, UPLOAD_SENDING);
    }
}

/* All requests have ended, and at least one had failed. */
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
        run_file_failed(u, &u->err); /* its parts stay in the bucket for the next run */
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

static void part_back(struct upload *u, const struct transfer_answer *a)
{
    const struct transfer *l = container_of(a, struct transfer, answer);
    struct logbook_part part = {.size_bytes = l->request.len, .digest = l->digest};
    struct err err = a->err;
    int code = a->code;
    snprintf(part.etag, sizeof part.etag, "%s", a->etag);
    if (code == 0 && u->state == UPLOAD_SENDING) {
        code = logbook_part(u->run->logbook, u->multi, l->request.number, &part, &err);
        u->run->stop.gave_up |= code < 0;
    } else if (code == 0 && u->state == UPLOAD_READING)
        u->object.differs |= !digest_eq(&a->digest, &u->part.sums[l->request.number - 1].digest);
    else if (code == 0)
        u->part.sums[l->request.number - 1] = part;
    if (code == 0)
        u->part.left--;
    if (code < 0 && !u->failed) {
        u->failed = true;
        u->err = err;
        u->may_retry = a->may_retry;
    }
    if (u->in_flight == 0 && u->failed)
        parts_failed(u);
    else if (u->in_flight == 0 && u->part.left == 0)
        parts_done(u);
}

static void completed(struct upload *u, const struct transfer_answer *a)
{
    u->must_sweep |= a->requests > 1; /* the upload met its own object; the multipart upload was not completed */
    u->object.guard = a->guard;
    if (a->code == 0) {
        upload_confirm(u, a);
    } else if (a->code == -ERR_EXISTS) {
        upload_drop(u, AFTER_LOOK, &a->err);
    } else if (a->code == -ERR_NOT_FOUND) {
        u->vanished = true;
        u->err = a->err;
        upload_become(u, UPLOAD_CONFIRMING);
    } else if (is_passing(a)) {
        run_file_failed(u, &a->err);
    } else {
        upload_drop(u, AFTER_FAIL, &a->err);
    }
}

/* Without permission or support for listing uploads, abort the upload whose ID is known. */
static bool falls_back(struct upload *u, const struct transfer_answer *a)
{
    if (u->may_not_list || !u->multi->upload_id || (a->code != -ERR_DENIED && a->code != -ERR_UNSUPPORTED))
        return false;
    u->may_not_list = true;
    return true;
}

static void dropped(struct upload *u, const struct transfer_answer *a)
{
    struct err err = u->err;
    if (u->must_sweep && falls_back(u, a))
        return;
    if (a->code < 0 && a->code != -ERR_NOT_FOUND && a->code != -ERR_DENIED) {
        /* The logbook keeps it: the next run retries. The first error is more useful than that of the abort. */
        bool has_failed = u->after == AFTER_FAIL && a->code != -ERR_CANCELLED;
        run_file_failed(u, has_failed ? &err : &a->err);
        return;
    }
    upload_ended(u);
    if (u->after == AFTER_WAIT) {
        run_file_waits(u, 0, err.text);
    } else if (u->after == AFTER_LOOK) {
        upload_look(u);
    } else {
        run_file_failed(u, &err);
    }
}

static void cleaned(struct upload *u, const struct transfer_answer *a)
{
    bool is_chore = u->file == NO_FILE && u->group == SIZE_MAX, gone = a->code == 0 || a->code == -ERR_NOT_FOUND;
    if (falls_back(u, a))
        return;
    /* If the abort is denied, send the file anyway: the bucket's lifecycle rules remove old uploads. */
    gone |= !is_chore && (a->code == -ERR_DENIED || a->code == -ERR_UNSUPPORTED);
    if (gone)
        upload_ended(u);
    if (is_chore)
        run_file_left(u);
    else if (gone)
        upload_begin_again(u);
    else
        run_file_failed(u, &a->err);
}

/* The object exists in any case. Uploads that cannot be aborted now stay in the logbook for the next run. */
static void swept(struct upload *u, const struct transfer_answer *a)
{
    bool is_hopeless = a->code == -ERR_DENIED || a->code == -ERR_UNSUPPORTED || a->code == -ERR_NOT_FOUND;
    if (a->code == 0 || is_hopeless)
        upload_ended(u);
    run_file_sent(u, u->how);
}

static void (*const answers[])(struct upload *u, const struct transfer_answer *a) = {
    [UPLOAD_LOOKING] = upload_looked, [UPLOAD_WITHDRAWING] = checkpoint_answer,
    [UPLOAD_CLEANING] = cleaned,      [UPLOAD_BEGINNING] = began,
    [UPLOAD_PROBING] = upload_probed, [UPLOAD_COMPARING] = part_back,
    [UPLOAD_READING] = part_back,     [UPLOAD_SENDING] = part_back,
    [UPLOAD_COMPLETING] = completed,  [UPLOAD_DROPPING] = dropped,
    [UPLOAD_PUTTING] = put_done,      [UPLOAD_CONFIRMING] = upload_confirmed,
    [UPLOAD_SWEEPING] = swept,
};

void upload_answer(struct upload *u, const struct transfer *l)
{
    assert(u->state < countof(answers) && answers[u->state]); /* else an answer came without a request */
    u->in_flight--;
    answers[u->state](u, &l->answer);
}
