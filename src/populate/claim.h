/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - decides the next step for a claim with a BucketSource, by the volume-populator contract. Pure.
 * home: any. Views borrow from the objects that they were read from.
 *
 * The user's claim is the target. Cistern creates a prime claim of the same class and node, which gets the volume. When
 * the volume is filled, its claimRef is set to the target, and the prime is deleted.
 *
 * There is no state between two calls: each step follows from the present objects. So a controller may die at any
 * point, and two may run at once. Of the target only the finalizer and the annotation selected-node are written: any
 * other change makes a scheduler that binds the claim start again.
 * Code: claim.c decides, claim_read.c reads. */
#pragma once

#include "util/json.h"

#define CLAIM_SELECTED_NODE "volume.kubernetes.io/selected-node"

enum claim_phase { CLAIM_PENDING, CLAIM_BOUND, CLAIM_LOST };

/* A PersistentVolumeClaim, target or prime. */
struct claim {
    struct str namespace, name, uid, version;
    struct str class_name;
    struct str volume_name;
    struct str selected_node;
    struct str source;              /* name of the BucketSource; empty: none */
    struct str bad_kind, bad_group; /* of a dataSourceRef that is almost a BucketSource; empty: none */
    struct str source_namespace;    /* default: the claim's own */
    struct str annotated_source;    /* without a dataSourceRef: of its annotation; empty: none */
    struct str hydration;           /* of its annotation; empty: that of the class */
    struct str export_policy;       /* the BucketSource of its annotation; empty: none */
    struct str prime_node;          /* of a prime: the node that it was created for */
    struct str created;             /* RFC 3339 */
    struct str provisioner;         /* annotation storage-provisioner; empty: not set by the controller manager yet */
    enum claim_phase phase;
    bool deleting;
    bool has_finalizer; /* Cistern's */
    bool made_cordoned; /* of a prime: its node was already cordoned when the prime was created */
    bool is_invalid;    /* while Pending: it cannot get a volume as it is */
    struct err invalid;
};

/* A PersistentVolume. */
struct claim_pv {
    struct str name, version;
    struct str claim_namespace, claim_uid; /* of its claimRef */
    struct str policy;                     /* persistentVolumeReclaimPolicy */
    struct str saved_policy;               /* the policy of its class, saved in an annotation; empty: none */
    bool deleting;
};

struct claim_class {
    bool ours;     /* the provisioner is our driver */
    bool waits;    /* volumeBindingMode WaitForFirstConsumer */
    bool is_blank; /* hydration none: its volumes are not filled */
    bool is_invalid;
    struct err invalid; /* why its parameters are refused */
    bool awaits_pools;  /* no node has reported a pool yet, of any name */
    bool has_pool;      /* a node has its pool */
};

enum claim_node { CLAIM_NODE_GONE, CLAIM_NODE_UNREADY, CLAIM_NODE_CORDONED, CLAIM_NODE_READY };

/* Input of a decision. NULL: does not exist. */
struct claim_facts {
    struct str own_namespace;
    bool cross_namespace; /* crossNamespace is set, and a ReferenceGrant allows this source */
    const struct claim *target;
    const struct claim *prime;
    const struct claim_pv *pv;     /* the target's if its claimRef names the target, else the prime's */
    const struct claim_pv *orphan; /* of a deleted prime of the target; its policy would retain it */
    const struct claim_class *class;
    bool has_source;      /* the BucketSources that the target names exist */
    bool is_source_valid; /* and can be used as it names them */
    bool is_suspended;    /* the BucketSource has suspend: true */
    bool is_degraded;     /* the BucketSource was ready, and its last probe failed */
    enum claim_node node; /* of the prime if there is one, else of the target's selected-node */
    bool is_too_large;    /* no pool of the class has room for a target without a node */
    bool filled;          /* the prime's volume may be handed over: hydrated, or its mode does not wait for hydration */
    bool lost;            /* the prime's volume lost its data and must be created again */
    bool job_left;        /* a Job of a volume that was not handed over exists */
    bool volume_left;     /* a CisternVolume of the target that was not handed over exists ... */
    bool volume_unreachable; /* ... on an unreachable node: its release is not waited for */
};

enum claim_action {
    CLAIM_NOTHING,          /* see `why` */
    CLAIM_ADD_FINALIZER,    /* of the target */
    CLAIM_MAKE_PRIME,       /* create it for the target's selected-node */
    CLAIM_SAVE_POLICY,      /* save the volume's reclaim policy in an annotation and set Delete */
    CLAIM_HAND_OVER,        /* set the volume's claimRef to the target, and restore its policy */
    CLAIM_SELECT,           /* restore selected-node of the target */
    CLAIM_UNSELECT,         /* remove selected-node of the target, if it names the prime's node */
    CLAIM_DELETE_PRIME,     /* if its uid is the same */
    CLAIM_REMOVE_FINALIZER, /* of the target */
};

/* An event on the target. */
enum claim_event {
    CLAIM_EVENT_NONE,
    CLAIM_EVENT_SOURCE_NOT_FOUND,
    CLAIM_EVENT_SOURCE_ELSEWHERE, /* in another namespace */
    CLAIM_EVENT_IMMEDIATE,        /* the class has volumeBindingMode Immediate */
    CLAIM_EVENT_FOREIGN_CLASS,    /* the class is another driver's */
    CLAIM_EVENT_CLASS_NOT_FOUND,
    CLAIM_EVENT_CLASS_INVALID,
    CLAIM_EVENT_SOURCE_SUSPENDED,
    CLAIM_EVENT_SOURCE_INVALID,
    CLAIM_EVENT_SOURCE_DEGRADED,
    CLAIM_EVENT_REFERENCE_INVALID, /* dataSourceRef has a mistyped kind or group */
    CLAIM_EVENT_CLAIM_INVALID,
    CLAIM_EVENT_POOLS_PENDING,   /* no node has reported a pool yet */
    CLAIM_EVENT_POOL_NOT_FOUND,  /* no node of its topologies has the pool of the class */
    CLAIM_EVENT_POD_UNSCHEDULED, /* only if a pod names its node itself: then no scheduler chooses that of the claim */
    CLAIM_EVENT_POOLS_FULL,      /* the target is larger than the free space of every pool */
    CLAIM_EVENT_NODE_FULL,
    CLAIM_EVENT_NODE_GONE,
    CLAIM_EVENT_NODE_CORDONED,
    CLAIM_EVENT_VOLUME_LOST,
    CLAIM_EVENT_OTHER_VOLUME, /* the target was bound to another volume */
};

struct claim_step {
    enum claim_action action;
    enum claim_event event;
    const char *why; /* for the log; static */
};

struct claim_step claim_next(const struct claim_facts *f);

/* Does the target wait for a volume? */
bool claim_is_pending(const struct claim_facts *f);

/* Is the target being populated or cleaned up? For the metric of operations in flight. */
bool claim_in_flight(const struct claim_facts *f);

const char *claim_event_reason(enum claim_event e); /* "SourceNotFound" */
const char *claim_action_name(enum claim_action a); /* "hand over" */

/* ---- reading. ERR_INVALID names the path of a wrong field; the API server's checks are not repeated. ------------- */

must_check int claim_read(const json *pvc, struct claim *ret, struct err *err);
must_check int claim_pv_read(const json *pv, struct claim_pv *ret, struct err *err);
must_check int claim_class_read(const json *class, struct claim_class *ret, struct err *err);

/* The uid in a prime's name; false for other names, such as "prime-weights". */
bool claim_target_uid(struct str prime_name, struct str *ret);

/* Does this pod use the claim of its namespace? */
bool claim_is_used_by(struct str claim, const json *pod);

/* Has a node of its own choice, which no scheduler gave it? Of a pod that waits for its claim. */
bool claim_pod_names_node(const json *pod);

struct claim_users {
    size_t count;   /* pods that use the claim and have not ended */
    size_t evicted; /* of them: by a drain. It leaves pods of DaemonSets alone, and does not see later ones */
};
/* `pods` is a list of the claim's namespace. Pods created after `since_ns` (wall clock) came after the node was
 * cordoned. */
struct claim_users claim_users_of(struct str claim, const json *pods, int64_t since_ns);
