/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - a run of one lane without threads, on a volume's folder: `run` and `lane`, made by run_setup, taken apart by
 * run_teardown. What is under test is called by hand. */
#pragma once

#include "folder.h"
#include "private.h"

static const uint8_t run_uid[INDEX_UID_BYTES] = "a catalog's name";
static const uint8_t run_boot[16] = "this boot";
static struct hydrate *run;
static struct lane *lane;
static int run_data = -1; /* the folder that is filled */
static struct hydrate_source run_source = {.uri = "s3://bucket/prefix/"};

static inline int run_setup(void **state)
{
    struct err err;
    if (folder_setup(state) || dir_make(dir, "data", 0700, &run_data, &err) < 0)
        return 1;
    run = xcalloc(1, sizeof *run);
    lane = &run->lanes[0];
    pthread_mutex_init(&run->lock, NULL);
    pthread_mutex_init(&run->conflict_lock, NULL);
    run->o.sources = &run_source;
    run->o.source_count = run->lane_count = 1;
    run->faults = xcalloc(FAULTS_MAX, sizeof *run->faults);
    run->first_faults = xcalloc(HYDRATE_ERRORS_KEPT, sizeof *run->first_faults);
    lane->h = run;
    tree_init(&lane->tree, run_data, 0700);
    sbuf_init(&lane->key, 1 << 20);
    /* Nobody reads the mail: none is sent. */
    atomic_store(&lane->is_kicked, true);
    atomic_store(&run->is_drained_posted, true);
    int r = loop_new("driver", &run->loop, &err);
    if (r == 0)
        r = loop_new("loop/0", &lane->worker.loop, &err);
    if (r == 0)
        r = journal_open(dir, run_uid, PLAN_PART_BYTES, run_boot, &run->journal, &err);
    return r < 0 ? r : target_open_volume(dir, run_data, &run->target, &err);
}

static inline int run_teardown(void **state)
{
    loop_free(lane->worker.loop);
    loop_free(run->loop);
    target_free(run->target);
    journal_free(run->journal);
    index_free(run->index);
    tree_done(&lane->tree);
    sbuf_done(&lane->key);
    free(run->faults);
    free(run->first_faults);
    pthread_mutex_destroy(&run->lock);
    pthread_mutex_destroy(&run->conflict_lock);
    free(run);
    close(run_data);
    return folder_teardown(state);
}
