/* SPDX-License-Identifier: Apache-2.0 */
#include "store/writable.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

/* No store has an upload of this ID, and no object this generation. */
#define NO_UPLOAD STR("cistern-probe")
#define NO_GENERATION STR("1")

static void end(struct store_writable *w, const struct err *err)
{
    w->job = NULL;
    w->on_done(w->ctx, err);
}

static struct str key_of(const struct store_writable *w)
{
    return (struct str){w->key, w->key_len};
}

/* A key that no object has. */
static int make_key(struct store_writable *w, struct err *err)
{
    struct str prefix = store_prefix(w->store);
    bool is_open = prefix.len && !str_ends(prefix, STR("/"));
    int len = snprintf(w->key, sizeof w->key, "%.*s%s.cistern-probe-%016" PRIx64, STR_FMT(prefix), is_open ? "/" : "",
                       clock_random());
    w->key_len = (size_t)len;
    return w->key_len < sizeof w->key ? 0 : err_set(err, ERR_INVALID, "the prefix is too long for a key");
}

/* ---- a PUT that writes nothing ----------------------------------------------------------------------------------- */

static ssize_t one_byte(void *, char *buf, size_t room, uint64_t offset)
{
    if (room == 0 || offset > 0)
        return 0;
    *buf = '\n';
    return 1;
}

static void put_done(void *ctx, const struct store_reply *r)
{
    end(ctx, r->code < 0 && r->code != -ERR_EXISTS ? &r->err : NULL);
}

static void put(struct store_writable *w)
{
    const struct store_write u = {.key = key_of(w),
                                  .condition = STORE_IF_SAME,
                                  .match = NO_GENERATION,
                                  .storage_class = str_of(w->storage_class)};
    const struct store_body body = {.len = 1, .read = one_byte};
    w->job = store_put(w->store, w->worker, &u, &body, NULL, put_done, w);
}

/* ---- an upload that is begun and aborted ------------------------------------------------------------------------- */

static struct store_write upload_of(const struct store_writable *w, struct str id)
{
    return (struct store_write){.key = key_of(w),
                                .upload_id = id,
                                .storage_class = str_of(w->storage_class),
                                .digest_kind = store_caps(w->store)->upload_digest,
                                .part_bytes = store_caps(w->store)->part_bytes_min};
}

static void aborted(void *ctx, const struct store_reply *r)
{
    end(ctx, r->code < 0 ? &r->err : NULL);
}

static void begun(void *ctx, const struct store_reply *r)
{
    struct store_writable *w = ctx;
    if (r->code < 0) {
        end(w, &r->err);
        return;
    }
    snprintf(w->upload_id, sizeof w->upload_id, "%.*s", STR_FMT(r->upload_id));
    const struct store_write u = upload_of(w, str_of(w->upload_id));
    w->job = store_upload_abort(w->store, w->worker, &u, aborted, w);
}

/* A server may call the ID invalid instead of unknown. */
static void none_aborted(void *ctx, const struct store_reply *r)
{
    struct store_writable *w = ctx;
    if (r->code < 0 && r->code != -ERR_INVALID) {
        end(w, &r->err);
        return;
    }
    const struct store_write u = upload_of(w, STR_NULL);
    w->job = store_upload_begin(w->store, w->worker, &u, begun, w);
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

void store_writable_test(struct store_writable *w)
{
    struct err err;
    if (make_key(w, &err) < 0) {
        end(w, &err);
        return;
    }
    if (store_caps(w->store)->conditions == STORE_CONDITIONS_HONOURED) {
        put(w);
        return;
    }
    const struct store_write u = upload_of(w, NO_UPLOAD);
    w->job = store_upload_abort(w->store, w->worker, &u, none_aborted, w);
}

void store_writable_cancel(struct store_writable *w)
{
    if (w->job)
        store_cancel(w->job);
}
