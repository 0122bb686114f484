/* SPDX-License-Identifier: Apache-2.0 */
/* fake.c - a complete object store in memory, fake://bucket/prefix: what a new backend has to write.
 * home: one worker's loop. */
#include "backend.h"
#include "page.h"
#include "util/hash.h"

enum { OBJECTS_MAX = 64, KEYS_ON_A_PAGE = 3 };

struct fake_object {
    char *key;  /* owned */
    char *data; /* owned */
    size_t len;
};

struct fake {
    struct fake_object objects[OBJECTS_MAX]; /* sorted by key */
    size_t count;
};

struct fake_job {
    struct store_job job;
    struct object_page page;
};

static int fake_open(struct store *s, const struct store_options *o, const struct uri *u, struct err *err)
{
    (void)o, (void)u, (void)err;
    s->self = xcalloc(1, sizeof(struct fake));
    return 0;
}

static void fake_close(struct store *s)
{
    struct fake *f = s->self;
    for (size_t i = 0; f && i < f->count; i++) {
        free(f->objects[i].key);
        free(f->objects[i].data);
    }
    free(f);
}

/* The object's place, or where it would be. */
static size_t find(const struct fake *f, struct str key, bool *ret_exists)
{
    size_t i = 0;
    while (i < f->count && str_cmp(str_of(f->objects[i].key), key) < 0)
        i++;
    *ret_exists = i < f->count && str_eq(str_of(f->objects[i].key), key);
    return i;
}

static struct store_object describe(const struct fake_object *o)
{
    struct store_object ret = {.key = str_of(o->key), .size_bytes = o->len, .generation = 1};
    ret.digest = (struct digest){.kind = HASH_NONE};
    return ret;
}

static int put(struct fake *f, struct store_job *j, struct err *err)
{
    const struct job_args *a = &j->args;
    bool exists;
    size_t at = find(f, a->write.key, &exists);
    if (exists && a->write.condition == STORE_IF_ABSENT)
        return err_set(err, ERR_EXISTS, "the key exists");
    if (!exists && f->count == OBJECTS_MAX)
        return err_set(err, ERR_NO_SPACE, "the store is full");
    char *data = xcalloc(a->body.len + 1, 1);
    for (uint64_t done = 0; done < a->body.len;) {
        ssize_t n = a->body.read(a->body.ctx, data + done, a->body.len - done, done);
        if (n <= 0) {
            free(data);
            return err_set(err, ERR_IO, "the body ended early");
        }
        done += (uint64_t)n;
    }
    if (!exists) {
        memmove(&f->objects[at + 1], &f->objects[at], (f->count - at) * sizeof *f->objects);
        f->objects[at] = (struct fake_object){.key = str_dup(a->write.key)};
        f->count++;
    }
    free(f->objects[at].data);
    f->objects[at].data = data;
    f->objects[at].len = a->body.len;
    j->reply.object = describe(&f->objects[at]);
    return 0;
}

static int get(struct fake *f, struct store_job *j, struct err *err)
{
    bool exists;
    size_t at = find(f, j->args.write.key, &exists);
    if (!exists)
        return err_set(err, ERR_NOT_FOUND, "the key does not exist");
    const struct fake_object *o = &f->objects[at];
    j->reply.object = describe(o);
    if (j->op == STORE_OP_HEAD)
        return 0;
    if (j->args.offset + j->args.len > o->len)
        return err_set(err, ERR_CHANGED, "the object is shorter than the range");
    if (j->args.on_head)
        j->args.on_head(j->ctx, &j->reply.object);
    return j->args.on_data(j->ctx, o->data + j->args.offset, j->args.len);
}

static int list(struct fake *f, struct fake_job *fj)
{
    struct store_job *j = &fj->job;
    const struct store_page *p = &j->args.page;
    struct str after = p->token.len ? p->token : p->start_after;
    j->next_token = STR_NULL;
    for (size_t i = 0; i < f->count; i++) {
        struct store_object o = describe(&f->objects[i]);
        if (!str_starts(o.key, p->prefix) || (after.len && str_cmp(o.key, after) <= 0))
            continue;
        if (fj->page.count == KEYS_ON_A_PAGE) {
            j->next_token = str_of(f->objects[i - 1].key);
            break;
        }
        object_page_add(&fj->page, &o);
    }
    object_page_end(&fj->page);
    j->objects = fj->page.objects;
    j->object_count = fj->page.count;
    return 0;
}

static int delete (struct fake *f, struct store_job *j)
{
    bool exists;
    size_t at = find(f, j->args.write.key, &exists);
    if (!exists)
        return 0;
    free(f->objects[at].key);
    free(f->objects[at].data);
    f->count--;
    memmove(&f->objects[at], &f->objects[at + 1], (f->count - at) * sizeof *f->objects);
    return 0;
}

static int run(struct store_job *j, struct err *err)
{
    struct fake *f = j->store->self;
    switch (j->op) {
    case STORE_OP_GET:
    case STORE_OP_HEAD:
        return get(f, j, err);
    case STORE_OP_LIST:
        return list(f, container_of(j, struct fake_job, job));
    case STORE_OP_PUT:
        return put(f, j, err);
    case STORE_OP_DELETE:
        return delete (f, j);
    default:
        return err_set(err, ERR_UNSUPPORTED, "%s is not supported", store_op_name(j->op));
    }
}

static void fake_start(struct store_job *j)
{
    struct err err;
    char name[STORE_JOB_NAME_MAX];
    object_page_init(&container_of(j, struct fake_job, job)->page);
    if (run(j, &err) < 0) {
        err_wrap(&err, "%s", job_name(j, name));
        job_fail(j, &err);
    }
    job_done(j);
}

static void fake_release(struct store_job *j)
{
    object_page_done(&container_of(j, struct fake_job, job)->page);
}

static void nothing(struct store_job *j)
{
    (void)j; /* every attempt ends within start() */
}

extern const struct store_backend backend_fake;
const struct store_backend backend_fake = {
    .caps = {.lists_sorted = true,
             .lists_from_any_key = true,
             .lists_best_digest = true,
             .conditions = STORE_CONDITIONS_HONOURED,
             .part_bytes_min = 1,
             .parts_max = 1},
    .job_size = sizeof(struct fake_job),
    .open = fake_open,
    .close = fake_close,
    .start = fake_start,
    .stop = nothing,
    .resume = nothing,
    .release = fake_release,
};
