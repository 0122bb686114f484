/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - makes a run of one lane without threads, on a volume's directory: `run` and `lane`, by run_setup and
 * run_teardown. Tests call the functions under test. */
#pragma once

#include "folder.h"
#include "private.h"

static const uint8_t run_uid[INDEX_UID_BYTES] = "a catalog's name";
static const uint8_t run_boot[16] = "this boot";
static struct hydrate *run;
static struct hydrate_lane *lane;
static int run_data = -1; /* the directory to fill */
static struct hydrate_source run_source = {.uri = "s3://bucket/prefix/"};

static inline int run_setup(void **state)
{
    struct err err;
    if (folder_setup(state) || dir_make(dir, "data", 0700, &run_data, &err) < 0)
        return 1;
    run = xcalloc(1, sizeof *run);
    lane = &run->lanes[0];
    hydrate_queue_init(&run->queue, 1);
    faults_init(&run->faults);
    progress_init(&run->progress);
    pthread_mutex_init(&run->window.lock, NULL);
    pthread_mutex_init(&run->conflict_lock, NULL);
    run->o.sources = &run_source;
    run->o.source_count = run->lane_count = 1;
    lane->h = run;
    tree_init(&lane->tree, run_data, 0700);
    sbuf_init(&lane->key, 1 << 20);
    /* No loop runs: send no mail. */
    atomic_store(&lane->is_woken, true);
    atomic_store(&run->coordinator.is_check_posted, true);
    int r = loop_new("coordinator", &run->coordinator.loop, &err);
    if (r == 0)
        r = loop_new("loop/0", &lane->worker.loop, &err);
    if (r == 0)
        r = journal_open(dir, run_uid, PLAN_PART_BYTES, run_boot, &run->journal, &err);
    return r < 0 ? r : target_open_volume(dir, run_data, &run->target, &err);
}

static inline int run_teardown(void **state)
{
    loop_free(lane->worker.loop);
    loop_free(run->coordinator.loop);
    target_free(run->target);
    journal_free(run->journal);
    index_free(run->index);
    tree_done(&lane->tree);
    sbuf_done(&lane->key);
    hydrate_queue_done(&run->queue);
    faults_done(&run->faults);
    progress_done(&run->progress);
    pthread_mutex_destroy(&run->window.lock);
    pthread_mutex_destroy(&run->conflict_lock);
    free(run);
    close(run_data);
    return folder_teardown(state);
}
