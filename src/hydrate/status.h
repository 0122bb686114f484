/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - writes and reads the progress of a hydration, one JSON file in the volume's directory, for cisternd,
 * `cistern status` and people.
 * home: any. Replaced by rename once a second and at phase changes, without fsync: after a power loss it may be missing
 * or old, and the journal decides. Readers never see half of it. */
#pragma once

#include "util/err.h"
#include "util/str.h"

#define HYDRATE_STATUS_FILE "status.json"

enum hydrate_phase {
    HYDRATE_STARTING,
    HYDRATE_LISTING,   /* listing, and fetching already */
    HYDRATE_FETCHING,  /* the listing is complete */
    HYDRATE_VERIFYING, /* the last barrier, checksums that need another read */
    HYDRATE_DONE,      /* every object is whole and durable: the volume may be published */
    HYDRATE_FAILED,    /* `error` says why; the same command continues */
    HYDRATE_STOPPED,   /* interrupted; the same command continues */
};

const char *hydrate_phase_name(enum hydrate_phase p); /* "listing" */

/* A volume's phase as tables and metrics show it: "Hydrating", "Ready"; "Interrupted" if no process works on it. */
const char *hydrate_phase_label(enum hydrate_phase p, bool alive);

enum { HYDRATE_ERRORS_KEPT = 10, HYDRATE_OBJECT_TEXT_MAX = 1100, HYDRATE_MANIFEST_MAX = 80 };

struct hydrate_fault {
    char object[HYDRATE_OBJECT_TEXT_MAX]; /* UTF-8, cut if longer; empty: the run as a whole */
    enum err_id id;                       /* CISnnnn, 0: none */
    enum err_code code;
    char message[ERR_TEXT_MAX + ERR_ADVICE_MAX];
    unsigned attempts;
    int64_t time_ns; /* wall clock */
};

/* Details of the listing. Known only if one run made all of it: a run that resumes a listing does not know which names
 * the earlier one skipped. */
struct hydrate_listing {
    bool known;
    uint64_t objects_excluded; /* below the prefixes, excluded by their filters */
    uint64_t names_skipped;    /* file://: not regular files: pipes, sockets, devices, dangling links */
    char last_skipped[HYDRATE_OBJECT_TEXT_MAX]; /* one of them */
    uint64_t largest_bytes;                     /* of the selected objects */
    uint64_t seconds;                           /* its duration, rounded up */
};

/* Known only of a run that compared the files of a directory with a new listing. Not in the status file. */
struct hydrate_sync {
    bool known;
    uint64_t objects_same; /* of those done: the file existed already */
    uint64_t bytes_same;
    uint64_t objects_changed; /* of those done: the file had another version */
    uint64_t files_deleted;   /* of deleted objects */
    uint64_t files_gone;      /* of deleted objects, and kept */
};

struct hydrate_status {
    enum hydrate_phase phase;
    char source[1100];      /* the URI; no secret */
    uint64_t objects_total; /* listed so far */
    uint64_t objects_done;
    uint64_t objects_failed;
    uint64_t objects_size_only; /* of those done: the store gave no checksum */
    uint64_t objects_missing;   /* deleted since they were listed, and skipped */
    uint64_t objects_kept;      /* not written: a file that no hydration wrote has the name */
    struct hydrate_sync sync;
    uint64_t bytes_total;
    uint64_t bytes_done;
    uint64_t bytes_per_second;
    uint64_t eta_seconds; /* UINT64_MAX: unknown */
    uint64_t requests;    /* sent to the store, all attempts */
    uint64_t hedged;      /* GETs that were sent twice (store/hedge.h), of this run; not in the file */
    unsigned attempt;     /* 1: the first run; each run after an interruption adds one; a relist begins at 1 */
    char manifest[HYDRATE_MANIFEST_MAX]; /* "sha256:...", index_manifest() of a volume's whole listing; "": not yet */
    struct hydrate_listing listing;
    int pid;
    int64_t began_ns;   /* wall clock, of a volume's first attempt */
    int64_t started_ns; /* of this one */
    int64_t updated_ns;
    int64_t finished_ns; /* 0: not yet */
    bool has_error;
    struct hydrate_fault error; /* why phase is FAILED; of a run: why no request succeeds now */
    struct hydrate_fault errors[HYDRATE_ERRORS_KEPT];
    size_t error_count; /* kept here; objects_failed counts all */
};

/* Does a process hold the run's lock on this directory? It is an open-file-description lock on HYDRATE_LOCK_FILE,
 * held while the process lives. DONE is written only after the journal's `complete` is durable. */
#define HYDRATE_LOCK_FILE "hydrate.lock"
bool hydrate_is_alive(int dir);

/* `dir` is the volume's directory. The struct has about 20 KiB: callers keep it off small stacks. */
must_check int hydrate_status_write(int dir, const struct hydrate_status *s, struct err *err);

/* ERR_NOT_FOUND: no hydration has begun. ERR_CORRUPT: damaged, and named. Unknown keys are ignored. */
must_check int hydrate_status_read(int dir, struct hydrate_status *ret, struct err *err);
