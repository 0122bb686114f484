/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - the interface between store.c and an object store's own code, and the job that they share.
 * home: a struct store is frozen once open; a struct store_job lives on its worker's loop.
 *
 * To add an object store:
 * 1. Add its line to src/util/stores.def. The build compiles all of src/store/<name>/.
 * 2. Define `backend_<name>` there: the capability table (struct store_caps), and the functions of struct
 * store_backend.
 * 3. Over HTTP: start() calls call_go() with the struct call_steps of each operation, and call.h does the rest.
 * 4. Credentials: choose an enum creds_kind, or add one to src/creds.
 * 5. Test it in tests/unit/store/<name>/, and add <name>/<name> to unit(store ...) in tests/CMakeLists.txt.
 * tests/unit/store/fake/ is a complete store in memory to copy.
 *
 * store.c owns a job from its first attempt to on_done: it copies the arguments, asks the backend for an attempt, and
 * decides after each whether another is due. The backend knows one attempt.
 *
 * Code: job.c, race.c, store.c for store_open_creds(), backends.c for backend_of(), telemetry.c for store_op_name(). */
#pragma once

#include "store/pace.h"
#include "store/store.h"
#include <pthread.h>
#include <stdatomic.h>

struct hedge;
struct store_denials;
struct telemetry;

enum store_op {
    STORE_OP_GET,
    STORE_OP_HEAD,
    STORE_OP_LIST,
    STORE_OP_PUT,
    STORE_OP_PROBE,
    STORE_OP_BEGIN,
    STORE_OP_PART,
    STORE_OP_COMPLETE,
    STORE_OP_ABORT,
    STORE_OP_SWEEP,
    STORE_OP_DELETE,
    STORE_OPS
};

const char *store_op_name(enum store_op op); /* "GET", "LIST": the metrics' label `method` */

/* The arguments of a call. Strings are the job's own copies. */
struct job_args {
    struct store_write write;   /* not only of a write: each call has a key */
    struct store_object object; /* GET */
    uint64_t offset;
    uint64_t len;
    uint64_t alike_bytes;   /* HEAD with a digest_kind: read an object of this size to compute it */
    struct store_page page; /* LIST */
    struct str version;     /* DELETE: of the object; empty: the live one */
    unsigned number;        /* of a part */
    struct store_body body;
    struct store_parts parts; /* COMPLETE: the list and its etags are copied */
    struct rate *rate;
    bool new_connection; /* a reply to this request was malformed: its connection may have bytes of it left */
    bool patient;
    bool is_of_write; /* HEAD: a part of a write, which retries it */
    void (*on_head)(void *ctx, const struct store_object *object);
    int (*on_data)(void *ctx, const char *bytes, size_t len);
};

/* The two attempts of a read (race.c). */
struct job_race {
    struct timer watch;      /* until the next attempt, or until it is given up */
    struct store_job *rival; /* the other attempt; NULL: none */
    uint64_t asked_ns;
    uint64_t answered_ns;
    uint64_t taken; /* body bytes that the reader accepted */
    bool second;    /* the second attempt, which the caller does not know */
    bool answered;  /* its head is there and good */
    bool moved;     /* bytes were received since `watch` last fired */
    bool paused;    /* by the reader */
    bool lost;      /* the rival's head came first */
    bool gave_up;   /* it stood still */
    bool is_over;
};

struct store_job {
    struct store *store;   /* borrowed */
    struct worker *worker; /* borrowed */
    enum store_op op;
    struct job_args args;
    void *ctx;
    store_done *on_done; /* LIST: args.page.on_done instead */

    struct store_reply reply;           /* of the attempt; `requests` sums up */
    const struct store_object *objects; /* LIST: the page; the backend owns it until release */
    size_t object_count;
    struct str next_token;

    struct timer timer; /* the delay before an attempt, or before on_done of an attempt that ended at once */
    uint64_t began_ns;
    uint64_t sent_ns;   /* monotonic: when the attempt began */
    uint64_t waited_ns; /* since began_ns: between attempts, and for the store's rate */
    uint64_t served_ns; /* monotonic: when this job last received a byte */
    unsigned attempt;
    bool starting;  /* the backend's start() is on the stack: on_done must be called later */
    bool running;   /* an attempt is under way */
    bool cancelled; /* by store_cancel, or because the other attempt won */

    struct job_race race; /* a read only */

    char *words; /* owned: the copies of the arguments' strings */
    size_t words_used;
};

struct store_backend {
    struct store_caps caps;
    const char *permissions[STORE_OPS]; /* by operation, for "access denied". SWEEP: to list uploads */
    size_t job_size;                    /* size of the struct that begins with a struct store_job */
    must_check int (*open)(struct store *s, const struct store_options *o, const struct uri *u, struct err *err);
    void (*close)(struct store *s); /* must work after a failed open, too */
    /* Starts an attempt, which ends in job_done() exactly once, at once or later. */
    void (*start)(struct store_job *j);
    void (*stop)(struct store_job *j); /* cancels the running attempt; job_done follows, after this returns */
    void (*resume)(struct store_job *j);
    void (*release)(struct store_job *j); /* after an attempt, when its reply was read */
    /* Only with caps.conditions STORE_CONDITIONS_VARY: which conditions this server honours (store.h). */
    bool (*wants_probe)(const struct store *s);
    bool (*honours)(const struct store *s, enum store_if condition, bool multipart);
};

const struct store_backend *backend_of(const struct scheme *scheme);

/* Opens s->creds for the options and the backend's kind. `region` may be NULL. */
must_check int store_open_creds(struct store *s, const struct store_options *o, const char *region, struct err *err);

/* Limits the attempts of one kind of job. */
struct store_pace {
    struct pace pace;
    struct rate rate; /* in thousandths of an attempt: `pace` limits it */
};

struct store {
    const struct store_backend *backend;
    const struct scheme *scheme;
    struct store_caps caps; /* the backend's capabilities, without those that this bucket or server lacks */
    char *endpoint;         /* owned: the server's URL; NULL: the store has no server */
    char *bucket;           /* owned */
    char *prefix;           /* owned */
    size_t prefix_len;
    struct creds *creds;       /* owned; NULL: the store needs none */
    char *ca_file;             /* owned; NULL: the system's */
    char *ca;                  /* owned PEM text instead of the file; NULL: none */
    const struct guard *guard; /* borrowed; NULL: no limit, for a command that a person runs */
    bool is_stranger; /* guarded and not trusted: no bearer token is sent, and the server's messages are not shown */
    pthread_mutex_t lock;     /* guards `retry`, `again` and each `pace` */
    struct store_retry retry; /* no field is 0 */
    uint64_t reads_at_first;
    struct {
        struct err cause;  /* with the object's name */
        unsigned attempts; /* that failed */
        uint64_t due_ns;
        uint64_t since_ns; /* when the first failure since the last success was */
    } again;               /* of the request that most recently began to wait for a retry */
    struct store_pace writes, listings;
    _Atomic uint64_t retries;
    _Atomic uint64_t success_ns;   /* monotonic: of the last good answer */
    _Atomic uint64_t served_ns;    /* monotonic: when a byte of any answer last came */
    struct telemetry *telemetry;   /* owned */
    struct hedge *hedge;           /* owned */
    struct store_denials *denials; /* owned */
    void *self;                    /* the backend's own, owned by it */
};

/* The attempt has ended: j->reply holds its code (and err, may_retry ... if negative). May free the job. */
void job_done(struct store_job *j);

/* race.c sends a slow read a second time. The first successful head of a GET wins, and the other attempt is cancelled
 * before any of its body is delivered. For a HEAD or a page of a listing, the first complete reply wins. The caller
 * sees one job and holds the first attempt, whichever wins; both live until both have ended. The body of a GET that
 * stalls cannot be joined with another reply: the GET is cancelled, and the caller starts over.
 *
 * The first function: a read was sent. The second: the head of a GET was received and is a success (calls
 * args.on_head). For backends whose requests can be repeated. */
void job_asked(struct store_job *j);
void job_answered(struct store_job *j);
/* An attempt has ended. NULL: the other attempt still runs; else the attempt whose reply is the job's. */
struct store_job *job_settle(struct store_job *j);

/* A job with a copy of the arguments; its first attempt. job_head() is a HEAD of the object that `write` is about. */
struct store_job *job_make(struct store *s, struct worker *w, enum store_op op, const struct job_args *args);
struct store_job *job_submit(struct store_job *j);
struct store_job *job_head(struct store_job *write, store_done *done, void *ctx);

/* For race.c: creates a second job for the same read and caller; starts its attempt; cancels it. */
struct store_job *job_again(const struct store_job *j);
bool job_is_read(const struct store_job *j);
bool job_failure_passes(const struct store_reply *r); /* another attempt may end it */
void job_attempt(struct store_job *j);

/* The server is sent few writes a second at first: an export begins with many at once. */
void job_pace_writes(struct store *s);
void job_cancel(struct store_job *j);

/* Counts one request to the server (for file://, one visit to the disk). `code` is the metric's label: "200", "IO". */
void job_count_request(struct store_job *j, const char *code, uint64_t first_byte_ns, uint64_t total_ns);

/* Sets reply.code and hands over reply.err, so that `return job_fail(j, ...)` ends an attempt. */
void job_fail(struct store_job *j, const struct err *err);

/* Returns buf, of STORE_JOB_NAME_MAX: "s3://bucket/key", the subject of every sentence; cut after 200 bytes of key. */
enum { STORE_JOB_NAME_MAX = 320 };
char *job_name(const struct store_job *j, char *buf);
