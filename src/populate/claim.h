/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - what is to be done next for a claim that asks for a BucketSource: the volume-populator contract. Pure.
 * home: any. Views borrow from the objects that they were read from.
 *
 * The user's claim is the target. A prime claim of ours, of the same class and node, gets the volume that is filled;
 * then the volume's claimRef is turned to the target, and the prime, which has lost its volume, goes.
 *
 * Nothing is remembered between two calls: every step follows from the objects as they are, so that a controller may
 * die at any point, and two may be at work at once. Of the target only our finalizer and the annotation selected-node
 * are ever written: a claim that changes while the scheduler binds it makes the scheduler begin again. */
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
    struct str source;           /* name of the BucketSource; empty: it asks for none */
    struct str source_namespace; /* the claim's own where nothing is said */
    struct str prime_node;       /* of a prime: the node that it was made for */
    struct str created;          /* RFC 3339 */
    struct str provisioner;      /* whom the cluster's controller asks for its volume; empty: it has not looked yet */
    enum claim_phase phase;
    bool deleting;
    bool guarded;       /* our finalizer is on it */
    bool made_cordoned; /* of a prime: its node was cordoned already when it was made */
};

/* A PersistentVolume. */
struct claim_pv {
    struct str name, version;
    struct str claim_namespace, claim_uid; /* of its claimRef */
    struct str policy;                     /* persistentVolumeReclaimPolicy */
    struct str kept;                       /* the policy of its class, kept by us in an annotation; empty: none */
    bool deleting;
};

struct claim_class {
    bool ours;  /* the provisioner is our driver */
    bool waits; /* volumeBindingMode WaitForFirstConsumer */
};

enum claim_node { CLAIM_NODE_GONE, CLAIM_NODE_UNREADY, CLAIM_NODE_CORDONED, CLAIM_NODE_READY };

/* All that a decision rests on. NULL: not there. */
struct claim_facts {
    struct str own_namespace;
    bool cross_namespace; /* sources of other namespaces are allowed, and this one was granted */
    const struct claim *target;
    const struct claim *prime;
    const struct claim_pv *pv;    /* the target's if its claimRef names the target, else the prime's */
    const struct claim_pv *stray; /* of an earlier prime of the target, which is gone; it would be retained */
    const struct claim_class *class;
    bool has_source;      /* the BucketSource is there */
    enum claim_node node; /* of the prime if there is one, else of the target's selected-node */
    bool filled;      /* the prime's volume may be handed over: it is hydrated, or its mode does not wait for that */
    bool lost;        /* the prime's volume lost its data: another one must be made */
    bool job_left;    /* a Job still works on a volume that was not handed over */
    bool volume_left; /* a CisternVolume of the target is left that was not handed over ... */
    bool volume_stranded; /* ... on a node that cannot answer: it is released without anybody's waiting for it */
};

enum claim_action {
    CLAIM_NOTHING,      /* not ours, or it is another's turn: `why` */
    CLAIM_GUARD,        /* put our finalizer on the target */
    CLAIM_MAKE_PRIME,   /* for the target's selected-node */
    CLAIM_KEEP_POLICY,  /* note the volume's reclaim policy and make it Delete */
    CLAIM_HAND_OVER,    /* turn the volume's claimRef to the target, and its policy back */
    CLAIM_SELECT,       /* put the prime's node back on the target */
    CLAIM_UNSELECT,     /* take selected-node off the target, if it still names the prime's node */
    CLAIM_DELETE_PRIME, /* if it is still this one */
    CLAIM_UNGUARD,      /* take our finalizer off the target */
};

/* What a person should hear of it, as an event on the target. */
enum claim_notice {
    NOTICE_NONE,
    NOTICE_SOURCE_NOT_FOUND,
    NOTICE_SOURCE_ELSEWHERE, /* in another namespace */
    NOTICE_IMMEDIATE,        /* the class binds at once */
    NOTICE_FOREIGN_CLASS,    /* the class is another driver's */
    NOTICE_NODE_FULL,
    NOTICE_NODE_GONE,
    NOTICE_NODE_CORDONED,
    NOTICE_VOLUME_LOST,
    NOTICE_OTHER_VOLUME, /* the target was bound to another volume */
};

struct claim_step {
    enum claim_action action;
    enum claim_notice notice;
    const char *why; /* for the log; static */
};

struct claim_step claim_next(const struct claim_facts *f);

/* Is somebody's operation under way: between the guard and its end? For the metric of operations in flight. */
bool claim_in_flight(const struct claim_facts *f);

const char *claim_action_name(enum claim_action a); /* "hand over" */

/* ---- from the objects. ERR_INVALID names the path that is off; what the API server checked is not checked again. - */

must_check int claim_read(const json *pvc, struct claim *ret, struct err *err);
must_check int claim_pv_read(const json *pv, struct claim_pv *ret, struct err *err);
must_check int claim_class_read(const json *class, struct claim_class *ret, struct err *err);

/* The uid in a prime's name; false for another name, also for one that a user gave: "prime-weights". */
bool claim_target_uid(struct str prime_name, struct str *ret);
