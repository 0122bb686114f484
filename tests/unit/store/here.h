/* SPDX-License-Identifier: Apache-2.0 */
/* here.h - makes a worker without a network and a temporary directory, and calls a store and waits for its answer. */
#pragma once

#include "store/store.h"
#include "unit.h"
#include "util/file.h"
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>

struct here {
    char folder[64];
    char uri[96];
    int dir;
    struct thread_pool *threads;
    struct worker worker;
    struct store *store;
};

static void here_up(struct here *h)
{
    struct err err;
    snprintf(h->folder, sizeof h->folder, "/tmp/store-test-XXXXXX");
    assert_non_null(mkdtemp(h->folder));
    snprintf(h->uri, sizeof h->uri, "file://%s/", h->folder);
    h->dir = open(h->folder, O_RDONLY | O_DIRECTORY);
    assert_int_equal(thread_pool_new(2, &h->threads, &err), 0);
    h->worker = (struct worker){.threads = h->threads};
    assert_int_equal(loop_new("loop/0", &h->worker.loop, &err), 0);
    assert_int_equal(loop_start(h->worker.loop, &err), 0);
    assert_int_equal(store_open(&(struct store_options){.uri = str_of(h->uri)}, &h->store, &err), 0);
}

static void here_down(struct here *h)
{
    struct err err;
    loop_free(h->worker.loop);
    thread_pool_free(h->threads);
    store_free(h->store);
    close(h->dir);
    assert_int_equal(dir_remove(AT_FDCWD, h->folder, &err), 0);
}

static inline void here_file(struct here *h, const char *path, const char *content)
{
    struct err err;
    const char *name;
    auto_fd parent = -1;
    assert_int_equal(dir_make_parents(h->dir, path, 0755, &parent, &name, &err), 0);
    auto_fd fd = openat(parent, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_int_equal(file_write_all(fd, name, content, strlen(content), &err), 0);
}

/* One call, made on the loop and waited for. */
struct here_call {
    struct mail mail;
    struct here *here;
    void (*make)(struct here_call *c);
    const void *arg;
    sem_t answered;
    int code;
    struct err err;
    uint64_t size_bytes;
    char etag[256];
    struct digest digest;
    struct sbuf data;  /* GET: the bytes; LIST: the keys, a line each */
    struct sbuf token; /* LIST */
    size_t count;      /* LIST */
    struct store_job *job;
    unsigned calls;  /* of on_data */
    unsigned pauses; /* on_data says WEB_PAUSE so many times first */
};

static inline void call_keep(struct here_call *c, const struct store_reply *r)
{
    c->code = r->code;
    c->err = r->err;
    c->size_bytes = r->object.size_bytes;
    c->digest = r->object.digest;
    snprintf(c->etag, sizeof c->etag, "%.*s", STR_FMT(r->upload_id.len ? r->upload_id : r->object.etag));
    sem_post(&c->answered);
}

static inline void call_done(void *ctx, const struct store_reply *r)
{
    call_keep(ctx, r);
}

static inline void call_deliver(struct mail *m)
{
    struct here_call *c = container_of(m, struct here_call, mail);
    c->make(c);
}

static inline int call(struct here *h, struct here_call *c, void (*make)(struct here_call *c), const void *arg)
{
    c->here = h;
    c->make = make;
    c->arg = arg;
    c->mail.deliver = call_deliver;
    sem_init(&c->answered, 0, 0);
    sbuf_init(&c->data, 64 << 20);
    sbuf_init(&c->token, 8192);
    loop_post(h->worker.loop, &c->mail);
    sem_wait(&c->answered);
    sem_destroy(&c->answered);
    return c->code;
}

static inline void call_free(struct here_call *c)
{
    sbuf_done(&c->data);
    sbuf_done(&c->token);
}
