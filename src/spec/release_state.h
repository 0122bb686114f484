/* SPDX-License-Identifier: Apache-2.0 */
/* release_state.h - the release of a volume as a state machine: docs/design/010-release.md shows it on one page, and
 * tests/unit/spec/release_model_test.c checks all its interleavings. Pure. home: any.
 *
 * The invariant: bytes that the export policy selects are destroyed only after the bucket confirmed them, or after an
 * administrator gave them up. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How far the release of a volume is on its disk: durable, in mounts.json. */
enum release_stage {
    RELEASE_OPEN,   /* not requested, or withdrawn: pods may use the volume */
    RELEASE_CLOSED, /* requested: existing mounts stay, new ones are refused */
    RELEASE_SEALED, /* nothing is mounted, and mounts are refused: an export that starts now reads the final content */
};

/* ---- the next step ----------------------------------------------------------------------------------------------- */

enum release_place {
    RELEASE_HERE,
    RELEASE_UNREADABLE, /* here, and volume.json cannot be read */
    RELEASE_MISSING,    /* its pool is here, but the volume is not */
    RELEASE_ABSENT,     /* its pool is not here: the disk is not mounted, or the pool not configured */
};

enum release_verdict { RELEASE_UNTRIED, RELEASE_CONFIRMED, RELEASE_FAILED }; /* of the last export for release */

struct release_facts {
    enum release_place place;
    enum release_stage stage;
    bool in_cluster;      /* an order requests the release and can withdraw it; else the call itself requests it */
    bool is_withdrawn;    /* the order no longer requests the release */
    bool is_committed;    /* the order can no longer be withdrawn */
    bool may_discard;     /* an administrator gave up the files that are not exported */
    bool has_policy;      /* files are selected for export */
    bool discards_failed; /* the policy gives up files that cannot be exported */
    bool in_use;          /* staged or published */
    bool at_work;         /* an export runs, or (in a cluster) a hydration */
    uint64_t writes;      /* the record's number of the last publish for writing; 0: never written */
    enum release_verdict verdict;
    uint64_t verdict_writes; /* `writes` when that export started on the sealed volume; else 0 */
};

enum release_step {
    /* The next step; afterwards the facts are read again. Each step is durable before the next one. */
    RELEASE_REOPEN, /* stage := OPEN */
    RELEASE_CLOSE,  /* stage := CLOSED */
    RELEASE_SEAL,   /* stage := SEALED */
    RELEASE_COMMIT, /* mark the order, unless it was withdrawn: afterwards it cannot be withdrawn */
    RELEASE_TRASH,  /* rename the volume into the trash */
    /* Results: the reason to wait, or the end. */
    RELEASE_HELD,          /* its pool is absent, and may have files that were not exported */
    RELEASE_DAMAGED,       /* it is unreadable */
    RELEASE_IN_USE,        /* staged or published */
    RELEASE_AT_WORK,       /* an export or a hydration must end first */
    RELEASE_EXPORT_DUE,    /* an export for release must run */
    RELEASE_EXPORT_FAILED, /* the export for release failed: it must run again */
    RELEASE_WITHDRAWN,     /* the volume is open again */
    RELEASE_GONE,          /* nothing of it is left here */
};

enum release_step release_next_step(const struct release_facts *f);

/* ---- admission of other calls during a release ------------------------------------------------------------------- */

enum release_admission {
    RELEASE_ADMIT, /* the mount may be made */
    /* The same, but stage := OPEN must be durable before the mount: no other actor can withdraw the release here. */
    RELEASE_ADMIT_BY_WITHDRAWING,
    RELEASE_REFUSE,     /* until the order is withdrawn */
    RELEASE_REFUSE_NOW, /* until the export for release has ended */
};

/* May the volume be staged or published now? */
enum release_admission release_admit(enum release_stage stage, bool in_cluster, bool export_for_release_runs);

/* The number that a verdict gets at the export's start. It is valid only if `writes` is unchanged at the end. */
uint64_t release_verdict_writes(enum release_stage stage, uint64_t writes);

/* May the controller withdraw the request? */
bool release_may_withdraw(bool is_requested, bool is_committed);
