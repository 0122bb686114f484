/* SPDX-License-Identifier: Apache-2.0 */
/* receive URL-PREFIX COUNT [LOOPS [WINDOW [DIR]]]: GETs COUNT synthetic objects of the bucket server (URL-PREFIX
 * followed by nine digits) with our own HTTP floor, sums them up and drops the bytes: the limit that an engine on it
 * cannot pass. With DIR, small objects are written there as null_hydrate does it: no plan, no catalog, no journal. */
#include "io/web.h"
#include "util/clock.h"
#include "util/hash.h"
#include <assert.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>

enum { LOOPS_MAX = 8, FOLDER_FILES = 1000, BODY_MAX = 1 << 20 };

struct reader {
    struct loop *loop;
    struct web *web;
    struct mail begin;
    unsigned first, step, next, under_way, window;
    uint64_t bytes;
    sem_t *over;
};

struct get {
    struct reader *reader;
    struct hash hash;
    unsigned number;
    char *bytes; /* owned; NULL without DIR */
    size_t len;
};

static const char *prefix;
static unsigned count;
static int dir = -1;

static void read_next(struct get *g);

static int body(void *ctx, const char *bytes, size_t len)
{
    struct get *g = ctx;
    hash_update(&g->hash, bytes, len);
    g->reader->bytes += len;
    if (g->bytes) {
        assert(len <= BODY_MAX - g->len);
        memcpy(g->bytes + g->len, bytes, len);
        g->len += len;
    }
    return 0;
}

static void write_file(const struct get *g)
{
    char name[64];
    snprintf(name, sizeof name, "%u/object-%09u", g->number / FOLDER_FILES, g->number);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, g->bytes, g->len) != (ssize_t)g->len || close(fd) != 0) {
        perror(name);
        exit(1);
    }
}

static void make_folders(const char *path)
{
    dir = open(path, O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; i * FOLDER_FILES < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        if (dir < 0 || mkdirat(dir, name, 0755) != 0) {
            perror(path);
            exit(1);
        }
    }
}

static void done(void *ctx, const struct web_result *r)
{
    struct get *g = ctx;
    struct digest d;
    if (r->code < 0 || r->status != 200) {
        fprintf(stderr, "receive: status %d: %s\n", r->status, r->code < 0 ? r->err.text : "");
        exit(1);
    }
    hash_end(&g->hash, &d);
    if (g->bytes)
        write_file(g);
    read_next(g);
}

static void read_next(struct get *g)
{
    struct reader *r = g->reader;
    char url[512];
    if (r->next >= count) {
        free(g->bytes);
        free(g);
        if (--r->under_way == 0)
            sem_post(r->over);
        return;
    }
    g->number = r->next;
    g->len = 0;
    snprintf(url, sizeof url, "%s%09u", prefix, r->next);
    r->next += r->step;
    hash_begin(&g->hash, HASH_CRC32C);
    struct web_request q = {.method = "GET", .url = url, .ctx = g, .on_body = body, .on_done = done};
    web_submit(r->web, &q);
}

static void begin(struct mail *m)
{
    struct reader *r = container_of(m, struct reader, begin);
    r->under_way = r->window;
    for (unsigned i = 0; i < r->window; i++) {
        struct get *g = xcalloc(1, sizeof *g);
        g->reader = r;
        g->bytes = dir >= 0 ? xcalloc(BODY_MAX, 1) : NULL;
        hash_init(&g->hash);
        read_next(g);
    }
}

int main(int argc, char **argv)
{
    struct reader readers[LOOPS_MAX] = {0};
    struct web_options o = {0};
    struct err err;
    sem_t over;
    if (argc < 3) {
        fprintf(stderr, "receive URL-PREFIX COUNT [LOOPS [WINDOW [DIR]]]\n");
        return 2;
    }
    web_keep_heap();
    prefix = argv[1];
    count = (unsigned)strtoul(argv[2], NULL, 10);
    unsigned loops = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 2;
    unsigned window = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 32;
    assert(loops >= 1 && loops <= LOOPS_MAX && window >= 1);
    if (argc > 5)
        make_folders(argv[5]);
    sem_init(&over, 0, 0);
    for (unsigned i = 0; i < loops; i++) {
        struct reader *r = &readers[i];
        *r = (struct reader){.begin.deliver = begin, .next = i, .step = loops, .window = window, .over = &over};
        if (loop_new("loop", &r->loop, &err) < 0 || web_new(r->loop, &o, &r->web, &err) < 0 ||
            loop_start(r->loop, &err) < 0) {
            fprintf(stderr, "receive: %s\n", err.text);
            return 1;
        }
        loop_post(r->loop, &r->begin);
    }
    uint64_t bytes = 0;
    for (unsigned i = 0; i < loops; i++)
        sem_wait(&over);
    for (unsigned i = 0; i < loops; i++) {
        loop_stop_and_join(readers[i].loop);
        web_free(readers[i].web);
        loop_free(readers[i].loop);
        bytes += readers[i].bytes;
    }
    printf("{\"bytes\":%llu}\n", (unsigned long long)bytes);
    return 0;
}
