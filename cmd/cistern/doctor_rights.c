/* SPDX-License-Identifier: Apache-2.0 */
/* Tries each right that a source or an export needs. A request for a right needs no other right, so that the error
 * names the one that is missing. */
#include "cistern.h"
#include "doctor.h"
#include "store/single.h"
#include "util/clock.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

/* VERSIONS_MAX: the marker of a missing object, the object, and its marker. */
enum { KEY_MAX = 1024, VERSION_MAX = 256, VERSIONS_MAX = 3 };

/* One request to the store. home: the loop while it runs; main before and after. */
struct trial {
    struct mail mail;
    struct doctor_store *d;
    void (*ask)(struct trial *t);
    char key[KEY_MAX + 1];
    size_t key_len;
    uint64_t size_bytes; /* of the object */
    struct sbuf upload_id;
    struct store_single single;
    char versions[VERSIONS_MAX][VERSION_MAX]; /* that this test made */
    unsigned version_count;
    bool keeps_versions; /* notes them */
    unsigned removing;   /* of versions */

    int code; /* 0 or -(enum err_code) */
    struct err err;
    bool may_retry;
    unsigned requests;
    uint64_t took_ns;
};

static void trial_done(struct trial *t)
{
    sbuf_done(&t->upload_id);
}

static struct str key_of(const struct trial *t)
{
    return (struct str){t->key, t->key_len};
}

/* a longer key would not fit a store */
static void set_key(struct trial *t, struct str key, uint64_t size_bytes)
{
    t->key_len = min_u64(key.len, KEY_MAX);
    memcpy(t->key, key.ptr, t->key_len);
    t->size_bytes = size_bytes;
}

/* Sets a key below the URI that no object has. */
static void set_new_key(struct trial *t)
{
    auto_sbuf b = SBUF(2 * KEY_MAX);
    struct str prefix = store_prefix(t->d->store);
    sbuf_add(&b, prefix);
    if (prefix.len && !str_ends(prefix, STR("/")))
        sbuf_addc(&b, '/');
    sbuf_addf(&b, ".cistern-doctor-%016" PRIx64, clock_random());
    set_key(t, sbuf_str(&b), 1);
}

static void answered(void *ctx, const struct store_reply *r)
{
    struct trial *t = ctx;
    t->code = r->code;
    t->may_retry = r->may_retry;
    t->requests = r->requests;
    t->took_ns = r->total_ns;
    if (r->code < 0)
        t->err = r->err;
    else if (t->upload_id.len == 0)
        sbuf_add(&t->upload_id, r->upload_id);
    if (r->code == 0 && t->keeps_versions && r->version.len && r->version.len < VERSION_MAX &&
        t->version_count < VERSIONS_MAX)
        snprintf(t->versions[t->version_count++], VERSION_MAX, "%.*s", STR_FMT(r->version));
    sem_post(&t->d->over);
}

static void deliver(struct mail *m)
{
    struct trial *t = container_of(m, struct trial, mail);
    t->ask(t);
}

static int run(struct trial *t, void (*ask)(struct trial *t))
{
    t->ask = ask;
    t->mail.deliver = deliver;
    loop_post(t->d->worker.loop, &t->mail);
    doctor_wait(t->d);
    return t->code;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Keeps the first object. */
static void listed(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count, struct str)
{
    struct trial *t = ctx;
    if (count > 0)
        set_key(t, objects[0].key, objects[0].size_bytes);
    answered(t, r);
}

static void ask_list(struct trial *t)
{
    const struct store_page p = {.prefix = store_prefix(t->d->store), .keys_max = 1, .ctx = t, .on_done = listed};
    store_list_page(t->d->store, &t->d->worker, &p);
}

static int drop(void *, const char *, size_t)
{
    return 0;
}

static void ask_read(struct trial *t)
{
    const struct store_object o = {.key = key_of(t), .size_bytes = t->size_bytes};
    store_get(t->d->store, &t->d->worker,
              &(struct store_get){
                  .object = &o, .len = min_u64(t->size_bytes, 1), .ctx = t, .on_data = drop, .on_done = answered});
}

static ssize_t one_byte(void *, char *buf, size_t room, uint64_t offset)
{
    if (room == 0 || offset > 0)
        return 0;
    *buf = '\n';
    return 1;
}

static void ask_write(struct trial *t)
{
    store_put(t->d->store, &t->d->worker, &(struct store_write){.key = key_of(t)},
              &(struct store_body){.len = 1, .read = one_byte}, NULL, answered, t);
}

static struct store_write upload_of(const struct trial *t)
{
    return (struct store_write){.key = key_of(t),
                                .upload_id = sbuf_str(&t->upload_id),
                                .digest_kind = store_caps(t->d->store)->upload_digest,
                                .part_bytes = store_caps(t->d->store)->part_bytes_min};
}

static void ask_begin(struct trial *t)
{
    const struct store_write u = upload_of(t);
    store_upload_begin(t->d->store, &t->d->worker, &u, answered, t);
}

static void ask_abort(struct trial *t)
{
    const struct store_write u = upload_of(t);
    store_upload_abort(t->d->store, &t->d->worker, &u, answered, t);
}

static void ask_uploads(struct trial *t)
{
    store_upload_sweep(t->d->store, &t->d->worker, key_of(t), answered, t);
}

static void ask_delete(struct trial *t)
{
    store_delete(t->d->store, &t->d->worker, key_of(t), answered, t);
}

static void ask_remove(struct trial *t)
{
    store_delete_version(t->d->store, &t->d->worker, key_of(t), str_of(t->versions[t->removing]), answered, t);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static bool report(const struct trial *t, const char *check, const char *text)
{
    char took[TIME_TEXT_MAX];
    if (t->code < 0)
        doctor_say_err(DOCTOR_FAIL, check, &t->err);
    else
        doctor_say(DOCTOR_PASS, check, "'%s': %s (%s)", t->d->uri, text, duration_text(t->took_ns, took));
    return t->code == 0;
}

static void not_tried(const struct trial *t, const char *check, const char *why)
{
    doctor_say(DOCTOR_WARN, check, "'%s': not tried: %s", t->d->uri, why);
}

/* store_get makes one attempt. */
static void read_twice_at_most(struct trial *t)
{
    if (run(t, ask_read) < 0 && t->may_retry)
        run(t, ask_read);
}

/* For a caller with list permission. 404 proves that reading is allowed. 403 proves nothing: S3 also denies the read of
 * a missing object if the policy allows lists of some prefixes only, since a read has no prefix. */
static void read_missing(struct trial *t)
{
    read_twice_at_most(t);
    if (t->code == -ERR_DENIED) {
        not_tried(t, "read", "no object is there, and a read of a missing one was denied");
        return;
    }
    t->code = t->code == -ERR_NOT_FOUND ? 0 : t->code;
    report(t, "read", "objects may be read; none was there to try");
}

static void read_object(struct trial *t)
{
    read_twice_at_most(t);
    report(t, "read", "an object was read");
}

/* ---- source ------------------------------------------------------------------------------------------------------ */

static void found(void *ctx, const struct store_object *o, const struct err *err, unsigned requests)
{
    struct trial *t = ctx;
    t->requests = requests;
    t->code = err ? err_copy(&t->err, err) : 0;
    if (o)
        set_key(t, o->key, o->size_bytes);
    sem_post(&t->d->over);
}

static void ask_find(struct trial *t)
{
    t->single = (struct store_single){.store = t->d->store, .worker = &t->d->worker, .ctx = t, .on_done = found};
    store_single_find(&t->single);
}

/* Needs no right to list. */
static void try_one_object(struct trial *t)
{
    run(t, ask_find);
    if (t->code == 0 && t->key_len == 0)
        t->code = store_found_nothing(t->d->store, t->d->uri, 0, &t->err);
    if (t->code < 0)
        report(t, "read", "");
    else
        read_object(t);
}

void doctor_try_source(struct doctor_store *d)
{
    auto_with(trial_done) struct trial t = {.d = d, .upload_id = SBUF(4096)};
    if (store_names_object(d->store)) {
        try_one_object(&t);
        return;
    }
    run(&t, ask_list);
    if (!report(&t, "list", "listed")) {
        if (t.code == -ERR_DENIED)
            not_tried(&t, "read", "no key is known; name an object's whole key");
    } else if (t.key_len > 0) {
        read_object(&t);
    } else {
        set_new_key(&t);
        read_missing(&t);
    }
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

/* Where objects may not be deleted, this test creates none. */
static int try_upload(struct trial *t, unsigned *ret_requests)
{
    run(t, ask_uploads);
    report(t, "uploads", "unfinished uploads may be listed");
    int r = run(t, ask_begin);
    *ret_requests = t->requests;
    if (r < 0) {
        report(t, "write", "");
        not_tried(t, "abort", "no upload could be begun");
        return r;
    }
    run(t, ask_abort);
    report(t, "abort", "an upload was begun and aborted");
    return 0;
}

/* An export needs no right to delete versions: a version that stays is a warning only. */
static void remove_versions(struct trial *t)
{
    unsigned left = 0;
    t->keeps_versions = false;
    for (t->removing = 0; t->removing < t->version_count; t->removing++)
        left += run(t, ask_remove) < 0;
    if (left > 0)
        doctor_say(DOCTOR_WARN, "versions",
                   "'%s': %u versions of '%.*s' of one byte at most stay in the bucket, because deleting versions "
                   "failed: let a lifecycle rule for noncurrent versions delete them",
                   t->d->uri, left, STR_FMT(key_of(t)));
}

static bool is_interrupted(void)
{
    sigset_t ends = ending_signals(), pending, both;
    sigpending(&pending);
    sigandset(&both, &ends, &pending);
    return !sigisemptyset(&both);
}

static void try_object(struct trial *t)
{
    if (is_interrupted())
        return;
    run(t, ask_write);
    if (!report(t, "write", "an object was written"))
        return;
    read_object(t);
    run(t, ask_delete);
    report(t, "delete", "the object was deleted");
}

/* Writes to the bucket, and removes again what it wrote. */
static void try_writes(struct trial *t, bool has_listed)
{
    unsigned begin_requests;
    set_new_key(t);
    int begun = try_upload(t, &begin_requests);
    t->keeps_versions = true;
    run(t, ask_delete);
    if (begun == 0 && t->code == 0) {
        try_object(t);
        remove_versions(t);
        return;
    }
    report(t, "delete", "a missing object was deleted");
    if (begun == 0 && begin_requests > 0)
        doctor_say(DOCTOR_PASS, "write", "'%s': an upload was begun", t->d->uri);
    else if (begun == 0)
        not_tried(t, "write", "the object could not be deleted again");
    if (has_listed)
        read_missing(t);
    else
        not_tried(t, "read", "no key is known");
    remove_versions(t); /* a deletion may have made a marker */
}

void doctor_try_export(struct doctor_store *d)
{
    auto_with(trial_done) struct trial t = {.d = d, .upload_id = SBUF(4096)};
    run(&t, ask_list);
    bool has_listed = report(&t, "list", "listed");
    if (!has_listed && t.code != -ERR_DENIED)
        return;
    /* No signal ends the process while the bucket has objects of the test. */
    sigset_t ends = ending_signals(), before;
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    try_writes(&t, has_listed);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
