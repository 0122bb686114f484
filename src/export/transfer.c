/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

enum { DIRECT_ALIGNMENT = 4096 };

void transfer_init(struct transfer *l, const struct transfer_way *way, struct worker *w)
{
    *l = (struct transfer){.way = way, .worker = w};
    hash_init(&l->read.hash);
}

void transfer_need_slices(struct transfer *l, size_t count)
{
    if (count <= l->slice_room)
        return;
    l->slices = xrealloc(l->slices, count, sizeof *l->slices);
    l->slice_room = count;
}

void transfer_done(struct transfer *l)
{
    free(l->slices);
    hash_done(&l->read.hash);
    *l = (struct transfer){0};
}

static void deliver_home(struct mail *m)
{
    struct transfer *l = container_of(m, struct transfer, mail);
    l->way->done(l);
}

static void go_home(struct transfer *l)
{
    l->busy = false;
    l->job = NULL;
    l->mail.deliver = deliver_home;
    loop_post(l->way->home, &l->mail);
}

static void fail(struct transfer *l, const struct err *err)
{
    l->answer.code = -(int)err->code;
    l->answer.err = *err;
    go_home(l);
}

static struct digest hash_slices(const struct transfer *l, enum hash_kind kind)
{
    struct hash h;
    struct digest d;
    hash_init(&h);
    hash_begin(&h, kind);
    for (uint64_t at = 0; at < l->request.len; at += SLICE_BYTES)
        hash_update(&h, l->slices[at / SLICE_BYTES].read.bytes, min_u64(SLICE_BYTES, l->request.len - at));
    hash_end(&h, &d);
    hash_done(&h);
    return d;
}

/* A store that does not support the sent checksum returns an MD5 as the ETag. The MD5 of our bytes confirms them;
 * any other ETag need not be an MD5. The MD5 is computed only here, so that other stores do not pay for it. */
static void take_md5(struct transfer *l)
{
    const struct transfer_answer *a = &l->answer;
    bool sent_bytes = l->request.op == TRANSFER_PUT || l->request.op == TRANSFER_PART;
    if (!sent_bytes || a->digest.kind != HASH_MD5 || l->digest.kind == HASH_MD5)
        return;
    struct digest md5 = hash_slices(l, HASH_MD5);
    if (digest_eq(&md5, &a->digest))
        l->digest = md5;
}

static void answered(void *ctx, const struct store_reply *r)
{
    struct transfer *l = ctx;
    struct transfer_answer *a = &l->answer;
    a->code = r->code;
    a->may_retry = r->may_retry;
    a->requests = r->requests - r->heads;
    a->guard = r->guard;
    a->rewritten = r->rewritten;
    if (r->code < 0) {
        a->err = r->err;
        if (r->code == -ERR_CHANGED) { /* ERR_CHANGED here means that the file changed; it is retried */
            a->err.code = ERR_CORRUPT;
            err_wrap(&a->err, "the store refused a condition that was not set; a proxy may have added it");
            a->code = err_advise(&a->err, CIS_FILE_NOT_EXPORTED);
        }
        go_home(l);
        return;
    }
    a->size_bytes = r->object.size_bytes;
    a->digest = r->object.digest;
    bool begins = l->request.op == TRANSFER_BEGIN;
    struct str name = begins ? r->upload_id : r->object.etag;
    if (r->composite_parts == 0 || r->composite_parts == l->request.parts.count)
        a->composite = r->composite;
    store_object_tag(&r->object, a->tag);
    snprintf(a->owner, sizeof a->owner, "%.*s", STR_FMT(str_sub(r->owner, 0, sizeof a->owner - 1)));
    take_md5(l);
    if (name.len >= (begins ? sizeof a->upload_id : sizeof a->etag)) {
        a->code = err_set(&a->err, ERR_CORRUPT, "'%.*s': the store's answer holds an id of %zu bytes",
                          STR_FMT(l->request.write.key), name.len);
        go_home(l);
        return;
    }
    snprintf(begins ? a->upload_id : a->etag, name.len + 1, "%.*s", STR_FMT(name));
    go_home(l);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static ssize_t give_bytes(void *ctx, char *buf, size_t room, uint64_t offset)
{
    struct transfer *l = ctx;
    size_t given = 0;
    while (given < room && offset < l->request.len) {
        size_t within = offset % SLICE_BYTES;
        size_t n = min_u64(min_u64(SLICE_BYTES - within, l->request.len - offset), room - given);
        memcpy(buf + given, (char *)l->slices[offset / SLICE_BYTES].read.bytes + within, n);
        given += n;
        offset += n;
    }
    return (ssize_t)given;
}

static void send_bytes(struct transfer *l)
{
    const struct store_body body = {.len = l->request.len, .digest = l->digest, .ctx = l, .read = give_bytes};
    const struct transfer_way *way = l->way;
    if (l->request.op == TRANSFER_HASH)
        go_home(l);
    else if (l->request.op == TRANSFER_PART)
        l->job = store_upload_part(way->store, l->worker, &l->request.write, l->request.number, &body, way->rate,
                                   answered, l);
    else if (l->request.op == TRANSFER_PROBE)
        l->job = store_probe(way->store, l->worker, &l->request.write, &body, way->rate, answered, l);
    else
        l->job = store_put(way->store, l->worker, &l->request.write, &body, way->rate, answered, l);
}

static int check_reads(const struct transfer *l, struct err *err)
{
    for (size_t i = 0; i < l->slice_count; i++) {
        const struct disk_job *r = &l->slices[i].read;
        if (r->result < 0)
            return err_sys(err, (int)-r->result, "cannot read '%.*s' at byte %" PRIu64, STR_FMT(l->request.path),
                           r->offset);
        if ((uint64_t)r->result < min_u64(SLICE_BYTES, l->request.len - i * SLICE_BYTES))
            return err_set(err, ERR_CHANGED, "it became shorter while it was read");
    }
    /* Checked after the last byte was read: then the slices have the content of the file at one moment. */
    return l->request.lease ? file_lease_check(l->request.lease, err) : 0;
}

static void all_read(struct transfer *l)
{
    struct err err;
    if (l->stopped)
        err_set(&err, ERR_CANCELLED, "the export was stopped");
    if (l->stopped || check_reads(l, &err) < 0) {
        fail(l, &err);
        return;
    }
    l->digest = hash_slices(l, l->request.write.digest_kind);
    send_bytes(l);
}

static void slice_read(struct disk_job *j)
{
    struct transfer *l = container_of(j, struct transfer_slice, read)->transfer;
    if (--l->reads_left == 0)
        all_read(l);
}

/* O_DIRECT needs whole blocks; reads end at the end of the file. */
static size_t padded(size_t len)
{
    return (len + DIRECT_ALIGNMENT - 1) / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
}

static void read_slices(struct transfer *l)
{
    if (l->slice_count == 0) {
        all_read(l);
        return;
    }
    /* The last submission may end the transfer: do not touch it afterwards. */
    size_t count = l->reads_left = l->slice_count;
    struct uring *uring = l->worker->uring;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)i * SLICE_BYTES;
        l->slices[i].transfer = l;
        l->slices[i].read = (struct disk_job){.op = DISK_READ,
                                              .fd = l->request.lease->fd,
                                              .bytes = l->slices[i].read.bytes,
                                              .len = padded(min_u64(SLICE_BYTES, l->request.len - at)),
                                              .offset = l->request.offset + at,
                                              .done = slice_read};
    }
    for (size_t i = 0; i < count; i++)
        uring_submit(uring, &l->slices[i].read);
}

/* ---- an object's bytes, back from the store ---------------------------------------------------------------------- */

static void read_object(struct transfer *l);

static void read_again(struct timer *t)
{
    read_object(container_of(t, struct transfer, read.again));
}

static int take_bytes(void *ctx, const char *bytes, size_t len)
{
    struct transfer *l = ctx;
    hash_update(&l->read.hash, bytes, len);
    return 0;
}

static void was_read(void *ctx, const struct store_reply *r)
{
    struct transfer *l = ctx;
    uint64_t delay_ns;
    l->job = NULL;
    if (r->code < 0 && !l->stopped &&
        store_retry_delay(l->way->store, r, ++l->read.attempts, clock_now_ns() - l->read.began_ns, &delay_ns)) {
        loop_timer_set(l->worker->loop, &l->read.again, delay_ns);
        return;
    }
    l->answer.may_retry = r->may_retry;
    if (r->code < 0) {
        fail(l, &r->err);
        return;
    }
    hash_end(&l->read.hash, &l->answer.digest);
    go_home(l);
}

static void read_object(struct transfer *l)
{
    struct str tag = l->request.write.match;
    struct store_object o = {.key = l->request.write.key, .size_bytes = l->request.object_bytes};
    if (str_to_u64(tag, &o.generation, ERR_IGNORED) < 0)
        o.etag = tag;
    struct store_get get = {.object = &o,
                            .offset = l->request.offset,
                            .len = l->request.len,
                            .attempts = l->read.attempts,
                            .ctx = l,
                            .on_data = take_bytes,
                            .on_done = was_read};
    hash_begin(&l->read.hash, l->request.read_kind);
    l->job = store_get(l->way->store, l->worker, &get);
}

static void begin_read(struct transfer *l)
{
    l->read.attempts = 0;
    l->read.began_ns = clock_now_ns();
    l->read.again.fire = read_again;
    read_object(l);
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

static void begin(struct transfer *l)
{
    const struct store_write *u = &l->request.write;
    struct store *store = l->way->store;
    switch (l->request.op) {
    case TRANSFER_PUT:
    case TRANSFER_PROBE:
    case TRANSFER_PART:
    case TRANSFER_HASH:
        read_slices(l);
        return;
    case TRANSFER_READ:
        begin_read(l);
        return;
    case TRANSFER_HEAD:
        l->job = store_head_digest(store, l->worker, u->key, l->request.object_bytes, u->digest_kind, answered, l);
        return;
    case TRANSFER_BEGIN:
        l->job = store_upload_begin(store, l->worker, u, answered, l);
        return;
    case TRANSFER_COMPLETE:
        l->job = store_upload_complete(store, l->worker, u, &l->request.parts, answered, l);
        return;
    case TRANSFER_ABORT:
        l->job = store_upload_abort(store, l->worker, u, answered, l);
        return;
    case TRANSFER_SWEEP:
        l->job = store_upload_sweep(store, l->worker, u->key, answered, l);
        return;
    case TRANSFER_DELETE:
        l->job = store_delete(store, l->worker, u->key, answered, l);
        return;
    }
}

static void deliver_go(struct mail *m)
{
    struct transfer *l = container_of(m, struct transfer, mail);
    struct err err;
    l->busy = true;
    if (l->stopped) {
        err_set(&err, ERR_CANCELLED, "the export was stopped");
        fail(l, &err);
        return;
    }
    begin(l);
}

void transfer_go(struct transfer *l)
{
    l->answer = (struct transfer_answer){0};
    l->digest = (struct digest){0};
    l->job = NULL;
    l->mail.deliver = deliver_go;
    loop_post(l->worker->loop, &l->mail);
}

void transfer_stop(struct transfer *l)
{
    l->stopped = true;
    if (l->busy && l->job) {
        store_cancel(l->job);
    } else if (l->busy && l->read.again.due_ns > 0) {
        struct err err;
        loop_timer_cancel(l->worker->loop, &l->read.again);
        err_set(&err, ERR_CANCELLED, "the export was stopped");
        fail(l, &err);
    }
}
