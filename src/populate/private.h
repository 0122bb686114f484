/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - what the files of this folder share: the parts of a running populator.
 * home: any thread; a reconcile function runs for one key on one thread at a time. */
#pragma once

#include "claim.h"
#include "kube/queue.h"
#include "populate/populate.h"
#include "report.h"
#include "turns.h"
#include <pthread.h>

#define LOOK_AGAIN_NS (10 * NS_PER_SECOND) /* what no event tells: a node that was cordoned, a class that came */
#define WRITE_EVERY_NS (5 * NS_PER_SECOND) /* of a BucketSource's status */

enum { INDEX_CLAIM, INDEX_SOURCE };    /* of claims: the target's uid, the source's "ns/name" */
enum { INDEX_ORDER, INDEX_JOB_CLAIM }; /* of Jobs: the CisternVolume's name, the target's uid */

/* A volume has one Job of each at a time. */
enum job_slot { SLOT_HYDRATE, SLOT_EXPORT, SLOT_HOLD, JOB_SLOTS };

/* What is remembered of a key between two looks at it: nothing that matters after a restart. */
struct memo {
    struct memo *next;
    char *key; /* owned */
    struct report_memo report;
    unsigned failures[JOB_SLOTS];     /* tries in a row */
    uint64_t retry_ns[JOB_SLOTS];     /* monotonic */
    uint64_t failed_ns[JOB_SLOTS];    /* monotonic: of the last failure */
    uint64_t ended_ns[JOB_SLOTS];     /* monotonic: the end of the Job that is there was first seen; 0: it has none */
    uint64_t bytes_before[JOB_SLOTS]; /* what was done when the last try failed */
    uint64_t written_ns;              /* monotonic: a status was written */
    uint64_t pause_ns;                /* until the next one */
    int64_t began_ns;                 /* wall clock: an operation is in flight since then; 0: none */
    unsigned probes;                  /* of a source: as many were told in its status */
    uint64_t generation;              /* of a source: as its volumes were looked at last; 0: unknown */
};

enum { MEMO_SLOTS = 4096, MEMOS_MAX = 200000, PROBE_THREADS = 8 };

/* What a source's store said. Under populate.lock, all of it. */
struct probe {
    struct probe *next;
    char *key;           /* owned: "ns/name" */
    uint64_t generation; /* of the source that was asked about */
    uint64_t due_ns;     /* monotonic: of the next one */
    unsigned count;      /* how many there were; 0: what follows is not known yet */
    bool failed;
    struct api_probe answer;
    struct err err;
    int64_t time_ns;    /* wall clock: of the last one */
    uint64_t mended_ns; /* monotonic: of the first that went well after one that did not */
};

struct populate {
    struct populate_options o;
    struct kube_informer *claims, *classes, *sources, *jobs; /* owned */
    struct kube_queue *queue, *probe_queue;                  /* owned; the latter NULL: nobody probes */
    struct metric_series *in_flight;
    struct metric *seconds;
    pthread_mutex_t lock; /* guards what follows; a memo itself is its key's */
    pthread_cond_t idle;
    unsigned busy; /* reconcile functions that run */
    bool stopping;
    struct memo *memos[MEMO_SLOTS];
    size_t memo_count, in_flight_count;
    struct probe *probes[MEMO_SLOTS];
    size_t probe_count;
    struct turns exports;
    const char *probing[PROBE_THREADS]; /* the namespaces of the sources that are asked about now; NULL: a free place */
    uint64_t probe_slot_ns;             /* monotonic: before that, no source that was not asked about yet is */
};

/* Between the two something may be asked of the API server: false once populate_stop() was called. */
bool work_begin(struct populate *p);
void work_end(struct populate *p);

/* Keys: a letter, a slash and a name. */
void look_at(struct populate *p, char what, struct str name);
void look_at_later(struct populate *p, char what, struct str name, uint64_t delay_ns);

/* The key's memo, made at first use. Past MEMOS_MAX nothing is remembered: NULL. */
struct memo *memo_of(struct populate *p, char what, struct str name);
struct memo *memo_find(struct populate *p, char what, struct str name); /* NULL: nothing is remembered */
void memo_forget(struct populate *p, char what, struct str name);

/* One operation more or less in flight; `result` of what ended, NULL for one that began. */
void operation_changed(struct populate *p, struct memo *m, int64_t began_ns, const char *result);

/* A volume's turn to export, see turns.h; who leaves lets the next one be looked at. */
bool export_turn_take(struct populate *p, const char *volume, const char *node, bool runs);
void export_turn_leave(struct populate *p, struct str volume);

int look_at_volume(void *p, struct str name, const json *volume); /* for kube_informer_each() */

/* ---- probes: probe.c --------------------------------------------------------------------------------------------- */

must_check int probes_open(struct populate *p, struct err *err);
void probes_close(struct populate *p);
void probe_soon(struct populate *p, struct str source); /* if it is due */

/* A copy of what is known of a source; false: nobody asks. One that was not asked yet, or about another generation, has
 * `count` 0. `key` and `next` are NULL. */
bool probe_find(struct populate *p, struct str source, uint64_t generation, struct probe *ret);

/* When its store answered again, monotonic; 0: it was never seen to fail. */
uint64_t probe_mended_ns(struct populate *p, struct str source);

/* A claim's own objects, as the informers have them: target and prime. Trees are the caller's. */
struct claim_pair {
    json *target_json, *prime_json; /* owned; NULL: not there */
    struct claim target, prime;     /* views into them */
};
must_check int claim_pair_read(struct populate *p, struct str uid, struct claim_pair *ret, struct err *err);
void claim_pair_done(struct claim_pair *c);

/* The PersistentVolumes of a claim, as the informer has them. Trees are the caller's. */
struct claim_pvs {
    json *pv_json;             /* owned: the target's own, or else its prime's; NULL: none */
    json *stray_json;          /* owned: one that an earlier prime left and that its policy would keep; NULL: none */
    struct claim_pv pv, stray; /* views into them */
};
must_check int claim_pvs_read(struct populate *p, struct str uid, const struct claim *prime, struct claim_pvs *ret,
                              struct err *err);
void claim_pvs_done(struct claim_pvs *v);

/* May this claim name the source of another namespace? If that is served at all, a ReferenceGrant there must say so. */
must_check int source_is_granted(struct populate *p, const struct claim *target, bool *ret, struct err *err);

enum claim_node node_state(struct populate *p, struct str name);

/* An event on the target. */
void claim_notice_tell(struct populate *p, const struct claim_pair *c, enum claim_notice notice);

int claim_reconcile(struct populate *p, struct str uid, uint64_t *again_ns, struct err *err);
int volume_reconcile(struct populate *p, struct str name, uint64_t *again_ns, struct err *err);
int source_reconcile(struct populate *p, struct str key, uint64_t *again_ns, struct err *err);
