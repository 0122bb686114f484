/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - shared by the files of the populator: its parts, and the state that it keeps of each key.
 * home: any thread; a reconcile function runs for one key on one thread at a time. */
#pragma once

#include "claim.h"
#include "io/rate.h"
#include "job_limit.h"
#include "kube/queue.h"
#include "populate/populate.h"
#include "util/map.h"
#include "util/thread.h"
#include "volume_events.h"

#define RECHECK_NS (10 * NS_PER_SECOND)    /* for changes that cause no event: a cordoned node, a new class */
#define SOURCE_WAIT_NS (3 * NS_PER_SECOND) /* for a BucketSource that is created together with its claim */
#define WRITE_EVERY_NS (5 * NS_PER_SECOND) /* of a BucketSource's status */

/* Of claims: the target's uid, the source's "ns/name", the source's namespace if it is not the claim's own. */
enum { INDEX_CLAIM, INDEX_SOURCE, INDEX_FOREIGN };
enum { INDEX_ORDER, INDEX_JOB_CLAIM }; /* of Jobs: the CisternVolume's name, the target's uid */

/* A volume has one Job of each at a time. */
enum job_slot { SLOT_HYDRATE, SLOT_EXPORT, SLOT_HOLD, JOB_SLOTS };

/* State of a key between two reconciles: nothing that matters after a restart. */
struct key_state {
    struct map_node node;
    char *key; /* owned */
    struct populate_event_state events;
    unsigned failures[JOB_SLOTS];     /* failed tries in a row */
    uint64_t retry_ns[JOB_SLOTS];     /* monotonic */
    uint64_t failed_ns[JOB_SLOTS];    /* monotonic: of the last failure */
    uint64_t ended_ns[JOB_SLOTS];     /* monotonic: when the end of the present Job was first seen; 0: it runs */
    uint64_t bytes_before[JOB_SLOTS]; /* done when the last try failed */
    uint64_t missing_ns;              /* monotonic: when the source of a claim was first missing; 0: it was not */
    uint64_t written_ns;              /* monotonic: of the last write of a status */
    uint64_t pause_ns;                /* until the next one */
    int64_t began_ns;                 /* wall clock: start of the operation in flight; 0: none */
    struct metric_series *failing;    /* cistern_claim_failing of a volume that fails; NULL: it does not */
    const char *pods_reason;          /* the reason of the last event on waiting pods; static, NULL: none */
    uint64_t pods_due_ns;             /* monotonic: before that, pods get no further one */
    unsigned pod_looks;               /* for pods that wait, with this reason; the pause after each doubles */
    struct list unlisted;             /* unlisted_event: owned; events that the claim got, and no pod yet */
    unsigned unlisted_count;
    /* Hashes of the versions of the last events of foreign_event.c; 0: none. A claim has the first only. */
    uint64_t foreign_events[JOB_SLOTS];
    uint64_t job_troubles[JOB_SLOTS]; /* likewise: hashes of the last troubles of pods of Jobs */
    enum {
        USERS_UNKNOWN,
        USERS_UNMOUNTED,
        USERS_MOUNTED
    } users;         /* when pods in user namespaces were last looked for */
    unsigned probes; /* of a source: number of probes that its status includes */
    uint64_t edit;   /* of a source: hash of its uid and generation when its volumes were last enqueued; 0: never */
};

enum { POD_LIST_SLOTS = 256 };
enum { KEY_STATES_MAX = 200000, KEY_BYTES_MAX = 512, PROBE_THREADS = 16, PROBE_SLOTS = 256 };

/* Result of the last request to a source's store. Under populate.lock, all of it. */
struct source_probe {
    struct map_node node;
    char *key;           /* owned: "ns/name" */
    uint64_t generation; /* of the source that was probed */
    uint64_t due_ns;     /* monotonic: of the next probe */
    unsigned failures;   /* failed probes in a row */
    unsigned count;      /* of probes; 0: the following fields are not known yet */
    bool was_ready;      /* at some time, perhaps of an earlier generation */
    bool failed;
    struct api_probe answer; /* with the error of the export */
    struct err err;
    int64_t time_ns;       /* wall clock: of the last probe */
    uint64_t recovered_ns; /* monotonic: of the first success after a failure */
};

struct populate {
    struct populate_options o;
    struct kube_informer *claims, *classes, *sources, *jobs; /* owned */
    struct kube_informer *prime_events;                      /* owned: the provisioner's, about primes */
    struct kube_informer *job_events;                        /* owned: the Job controller's, about pods of Jobs */
    struct kube_informer *grants;                            /* owned; NULL: crossNamespace is not set */
    atomic_bool has_no_grants;                               /* the cluster does not have this kind */
    struct kube_informer *job_pods;                          /* owned: without .spec but for the node */
    struct kube_queue *queue, *probe_queue;                  /* owned; the latter NULL: sources are not probed */
    atomic_bool was_synced;                                  /* all informers, once */
    struct metric_series *in_flight;
    struct metric *seconds, *failing;
    pthread_mutex_t lock; /* guards the fields below; the content of a key_state is its key's */
    struct map key_states;
    size_t in_flight_count;
    struct map probes;
    struct job_limit limits[JOB_SLOTS];
    const char *probing[PROBE_THREADS]; /* namespaces of the running probes; NULL: a free thread */
    /* Monotonic: the earliest first probe of a new source, by the hash of its namespace. */
    uint64_t probe_slot_ns[PROBE_SLOTS];
    pthread_mutex_t pods_lock;                      /* guards the fields below */
    struct list pod_lists;                          /* pod_list: owned */
    struct rate lists;                              /* of waiting pods, of all namespaces */
    struct rate lists_of_namespace[POD_LIST_SLOTS]; /* by the hash of its name */
};

/* ---- state.c ----------------------------------------------------------------------------------------------------- */

/* Keys: a letter for the kind, a slash and a name. */
void populate_enqueue(struct populate *p, char kind, struct str name);
/* The target's uid, of a prime claim, too: the key of both. */
struct str populate_claim_uid(const json *claim);
/* For kube_informer_each(). */
int populate_enqueue_volume(void *p, struct str name, const json *volume);
int populate_enqueue_claim(void *p, struct str key, const json *claim);

/* The state of a key. NULL: it has none, and `create` is not set, or KEY_STATES_MAX is reached. */
struct key_state *key_state_get(struct populate *p, char kind, struct str name, bool create);
void key_state_remove(struct populate *p, char kind, struct str name);
void key_states_done(struct populate *p);

/* Sends a write with `own_body` (NULL: none), fenced by the lease. */
must_check int populate_send(struct populate *p, struct kube_request q, json *own_body, struct err *err);

/* Counts operations in flight. `result` NULL: one began, else one ended. */
void operation_changed(struct populate *p, struct key_state *m, int64_t began_ns, const char *result);

/* job_limit_take() and job_limit_leave() under the lock; after the latter the next waiting volume is enqueued. */
bool populate_take_job_place(struct populate *p, enum job_slot slot, const struct job_request *r, bool is_running);
void populate_leave_job_place(struct populate *p, enum job_slot slot, struct str volume);

/* ---- source_probe.c ---------------------------------------------------------------------------------------------- */

must_check int source_probes_open(struct populate *p, struct err *err);
void source_probes_close(struct populate *p);
void source_probe_enqueue(struct populate *p, struct str source);

/* Copies the result of the last probe. False: sources are not probed. Without a probe of this generation `count` is 0.
 * `key` of the copy is NULL. */
bool source_probe_find(struct populate *p, struct str source, uint64_t generation, struct source_probe *ret);

/* When the store of the source recovered from a failure, monotonic; 0: it never failed. */
uint64_t source_recovered_ns(struct populate *p, struct str source);

/* ---- claim_reconcile.c ------------------------------------------------------------------------------------------- */

/* Target and prime claim of a target's uid, as the informers have them. The caller frees. */
struct claim_pair {
    json *target_json, *prime_json; /* owned; NULL: not there */
    struct claim target, prime;     /* views into them */
};
must_check int claim_pair_read(struct populate *p, struct str uid, struct claim_pair *ret, struct err *err);
void claim_pair_done(struct claim_pair *c);

/* PersistentVolumes of a claim, as the informer has them. The caller frees. */
struct claim_pvs {
    json *pv_json;              /* owned: the target's own, else its prime's; NULL: none */
    json *orphan_json;          /* owned: left by an earlier prime, and its policy would retain it; NULL: none */
    struct claim_pv pv, orphan; /* views into them */
};
must_check int claim_pvs_read(struct populate *p, struct str uid, const struct claim *prime, struct claim_pvs *ret,
                              struct err *err);
void claim_pvs_done(struct claim_pvs *v);

enum claim_node node_state(struct populate *p, struct str name);

/* ---- drain_users.c ----------------------------------------------------------------------------------------------- */

/* Updates cordoned_ns and blocked_ns of a volume. */
void drain_users_note(struct populate *p, struct api_volume *volume, enum claim_node node);
/* For longer than an administrator lets a volume block the drain? */
bool drain_users_stay(const struct populate *p, const struct api_volume *volume);

/* ---- claim_space.c ----------------------------------------------------------------------------------------------- */

/* ERR_NO_SPACE (CIS_POOL_FULL) if the claim is larger than the free space of every pool that has reported. */
must_check int claim_space_check(struct populate *p, const struct claim_pair *c, struct err *err);
/* Has no node reported a pool? Their drivers may have just begun. */
bool claim_space_awaits_pools(struct populate *p);
/* Does a node of its allowedTopologies have the pool of this class? */
bool claim_space_has_pool(struct populate *p, const json *class);
/* CIS_CLAIM_POOL_NOT_FOUND, with the class and the pool. */
must_check int claim_space_describe_pool(struct populate *p, const struct claim_pair *c, struct err *err);
/* "pool default has 3 GiB free, 5Gi requested", of the pool on the node of the prime. */
void claim_space_describe(struct populate *p, const struct claim_pair *c, char *ret, size_t size);

/* ---- claim_event_send.c ------------------------------------------------------------------------------------------ */

/* A view into the claim. */
struct kube_ref claim_ref(const struct claim *c);

void populate_event_send(struct populate *p, const struct kube_ref *about, const struct populate_event *what);

/* Sends the event to the claim and to the pods that wait for it. If the pods cannot be listed, or not now,
 * claim_events_finish() sends it to them. `m` limits the requests; NULL: no limit. */
void claim_event_send(struct populate *p, struct key_state *m, const struct kube_ref *claim,
                      const struct populate_event *what);
/* The same for an event that the caller repeats as long as its cause persists. */
void claim_event_repeat(struct populate *p, struct key_state *m, const struct kube_ref *claim,
                        const struct populate_event *what);
/* Call again while `m->unlisted` has events. */
void claim_events_finish(struct populate *p, struct key_state *m, const struct kube_ref *claim);
void claim_events_drop(struct key_state *m);
/* Only if a pod that the event concerns waits for the claim. False: the pods could not be listed, or not now. */
must_check bool claim_event_send_if_found(struct populate *p, const struct kube_ref *claim,
                                          const struct populate_event *what);
/* May the pods of this namespace be listed now? */
bool populate_may_list(struct populate *p, struct str ns);
void claim_events_open(struct populate *p);
void claim_events_done(struct populate *p);

/* ---- grant.c ----------------------------------------------------------------------------------------------------- */

void grants_open(struct populate *p);
/* Is crossNamespace set, and does a ReferenceGrant allow this claim to name its source in another namespace? ERR_AGAIN:
 * not known yet. */
must_check int source_is_granted(struct populate *p, const struct claim *target, bool *ret, struct err *err);

/* ---- foreign_event.c --------------------------------------------------------------------------------------------- */

void foreign_events_open(struct populate *p);
/* Sends the provisioner's last event about the prime, once. */
void prime_event_send(struct populate *p, struct key_state *m, const struct claim_pair *c);
/* Sends why the pod of this Job cannot be created, once for each event of the Job controller. NULL: no Job. */
void job_event_send(struct populate *p, struct key_state *m, const struct api_volume *volume, enum job_slot slot,
                    const json *job);
/* Sends why the pod of this Job does not start or was ended, once for each pod and trouble. NULL: no Job. */
void job_pod_event_send(struct populate *p, struct key_state *m, const struct api_volume *volume, enum job_slot slot,
                        const json *job);

/* ---- volume_event_send.c ----------------------------------------------------------------------------------------- */

/* Events about hydration, export, and the last test of its destination. `source_json` NULL: it was deleted. */
void volume_event_send(struct populate *p, struct key_state *m, const struct api_volume *volume,
                       const json *source_json);
/* Its hydration waits, because as many run as the limit allows. */
void volume_event_send_queued(struct populate *p, struct key_state *m, const struct api_volume *volume);
/* The pod of its Job does not run. */
void volume_event_send_trouble(struct populate *p, struct key_state *m, const struct api_volume *volume,
                               const struct populate_event *trouble);
/* The API server refuses its Job or the pod of it: a ResourceQuota, an admission policy, or a missing right. Does
 * nothing for other errors. */
void volume_event_send_refusal(struct populate *p, struct key_state *m, const struct api_volume *volume,
                               const struct err *why);
/* Its pod is in a user namespace, which the kernel of its node cannot map a FUSE mount to. CSI calls do not have this
 * field of a pod: the driver cannot refuse it. Looked for when the volume is new, and when it is mounted. False: it
 * could not be looked for, call again. */
must_check bool volume_event_send_user_namespace(struct populate *p, struct key_state *m,
                                                 const struct api_volume *volume);
/* Its node is drained without the files that it could not export. kube_event() limits it to one a minute. */
void volume_event_send_drain(struct populate *p, const struct api_volume *volume);

/* ---- reconcile functions ----------------------------------------------------------------------------------------- */

int claim_reconcile(struct populate *p, struct str uid, uint64_t *again_ns, struct err *err);
int volume_reconcile(struct populate *p, struct str name, uint64_t *again_ns, struct err *err);
int source_reconcile(struct populate *p, struct str key, uint64_t *again_ns, struct err *err);
