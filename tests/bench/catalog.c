/* SPDX-License-Identifier: Apache-2.0 */
/* catalog ENDPOINT URI DIR: lists a prefix into a catalog in DIR as a hydration does, and fetches nothing: what a long
 * listing takes in time and memory. */
#include "catalog/index.h"
#include "store/list.h"
#include "util/clock.h"
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

enum { WORKERS = 2 };

static struct index *index_made;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t over;
static uint64_t requests_made;

static void must(int r, const struct err *err)
{
    if (r >= 0)
        return;
    fprintf(stderr, "catalog: %s\n", err->text);
    exit(1);
}

static int on_page(void *ctx, const struct store_object *objects, size_t count, bool sorted_so_far)
{
    struct err err;
    bool is_new;
    (void)ctx;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        const struct store_object *o = &objects[i];
        struct index_entry e = {.path = o->key,
                                .size_bytes = o->size_bytes,
                                .mtime_ns = o->mtime_ns,
                                .generation = o->generation,
                                .etag = o->etag,
                                .digest = o->digest};
        must(index_add(index_made, &e, &is_new, &err), &err);
    }
    must(index_flush(index_made, sorted_so_far, &err), &err);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void on_done(void *ctx, const struct err *err, uint64_t requests)
{
    (void)ctx;
    must(err ? -(int)err->code : 0, err);
    requests_made = requests;
    sem_post(&over);
}

int main(int argc, char **argv)
{
    struct worker workers[WORKERS] = {0}, *several[WORKERS];
    struct web_options web = {0};
    struct store *store = NULL;
    struct thread_pool *pool = NULL;
    struct err err;
    if (argc != 4) {
        fprintf(stderr, "catalog ENDPOINT URI DIR\n");
        return 2;
    }
    int dir = open(argv[3], O_DIRECTORY | O_CLOEXEC);
    must(dir < 0 ? err_sys(&err, errno, "cannot open '%s'", argv[3]) : 0, &err);
    must(store_open(&(struct store_options){.uri = str_of(argv[2]), .endpoint = argv[1]}, &store, &err), &err);
    must(thread_pool_new(2, &pool, &err), &err);
    must(index_create(dir, &(struct index_source){.text = str_of(argv[2])}, &index_made, &err), &err);
    for (unsigned i = 0; i < WORKERS; i++) {
        must(worker_init(&workers[i], i, pool, &web, false, &err), &err);
        must(loop_start(workers[i].loop, &err), &err);
        several[i] = &workers[i];
    }
    sem_init(&over, 0, 0);
    struct store_listing_options o = {.prefix = store_prefix(store), .on_page = on_page, .on_done = on_done};
    struct store_listing *l = store_listing_start(store, several, WORKERS, &o);
    sem_wait(&over);
    uint64_t listed_ns = clock_now_ns();
    must(index_finish(index_made, &err), &err);
    printf("{\"objects\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"finish_ms\":%" PRIu64 "}\n", index_count(index_made),
           requests_made, (clock_now_ns() - listed_ns) / NS_PER_MS);
    for (unsigned i = 0; i < WORKERS; i++)
        worker_done(&workers[i]);
    store_listing_free(l);
    index_free(index_made);
    thread_pool_free(pool);
    store_free(store);
    return 0;
}
