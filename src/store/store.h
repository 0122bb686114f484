/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - reads, lists and writes objects in any object store: file://, s3://, gs://. home: a struct store is frozen
 * once open (its credentials refresh under their own lock) and serves any number of workers. A job lives on its
 * worker: callbacks run on that loop, never from within the submitting call; on_done is called once, last. All
 * operations but GET are retried here by one policy (store_retry_delay). A GET is one attempt, because its caller
 * holds the buffer and the hash; it asks store_retry_delay itself. A GET slower than 99 in 100 is sent twice, at most
 * one in a hundred (hedge.h).
 * Code: store.c opens a store and submits jobs, job.c runs and retries them, etag.c compares states of objects,
 * backends.c has store_creds_kind(). */
#pragma once

#include "creds/creds.h"
#include "io/rate.h"
#include "io/worker.h"
#include "util/hash.h"
#include "util/uri.h"

/* ---- objects ----------------------------------------------------------------------------------------------------- */

enum { STORE_OBJECT_TAG_MAX = 128 };
struct store_object {
    struct str key; /* whole key, any bytes; for file:// the path below the root */
    uint64_t size_bytes;
    int64_t mtime_ns;     /* wall clock */
    uint64_t generation;  /* gs://; 0 elsewhere */
    struct str etag;      /* s3:// with its quotes, file:// "mtime-size-inode"; pins a GET with the generation */
    struct str upload_id; /* in a listing of unfinished uploads; else empty */
    struct digest digest; /* of the whole object as stored, if the listing or the answer gave one (HASH_NONE if not) */
};

/* Whether the ETag or the generation pins one state of the object. */
bool store_object_is_pinned(const struct store_object *o);

/* The text that names it in a write under STORE_IF_SAME: the generation, else the ETag. "": neither is known, or
 * it is longer than STORE_OBJECT_TAG_MAX. */
void store_object_tag(const struct store_object *o, char ret[STORE_OBJECT_TAG_MAX]);

/* May two replies describe one state of an object? Compares generations, else ETags, else times; a property that
 * one of them lacks is not compared. */
bool store_object_is_same(const struct store_object *a, const struct store_object *b);

/* Gives *err, for an object that was deleted or replaced since it was listed, its id and advice. Returns
 * -err->code. */
int store_object_outdated(struct err *err);

/* ---- opening ----------------------------------------------------------------------------------------------------- */

enum store_auth { STORE_AUTH_CHAIN, STORE_AUTH_ANONYMOUS };

enum { STORE_ATTEMPTS_DEFAULT = 8 };

struct store_retry {
    unsigned attempts_max;    /* 0: STORE_ATTEMPTS_DEFAULT */
    uint64_t elapsed_max_ns;  /* 0: 30 min */
    uint64_t backoff_base_ns; /* 0: 250 ms */
    uint64_t backoff_cap_ns;  /* 0: 32 s */
};

/* Strings are copied. NULL or 0 means the default, which comes from the environment where the vendors' own tools take
 * it from there (AWS_*, GOOGLE_APPLICATION_CREDENTIALS, GCE_METADATA_HOST, STORAGE_EMULATOR_HOST ...). */
struct store_options {
    struct str uri;       /* s3://bucket/prefix, gs://bucket/prefix, file:///directory; prefix may be empty */
    const char *endpoint; /* "http://127.0.0.1:9000" */
    const char *region;
    const char *profile; /* of ~/.aws/config and credentials */
    const char *ca_file; /* file of trusted authorities, instead of the system's ... */
    struct str ca;       /* ... or PEM text, which has priority; empty: none */
    bool path_style;     /* s3: bucket in the path; always so for IP endpoints and names with dots */
    enum store_auth auth;
    struct creds_identity *identity; /* known identity, a reference; NULL: as `auth` says */
    const char *billing;             /* the requester pays: any text for s3, the project for gs; NULL: no */
    struct store_retry retry;
    const struct guard *guard; /* borrowed while the store lives; NULL: that of CISTERN_GUARD_FILE, or none */
};

struct store;
must_check int store_open(const struct store_options *o, struct store **ret, struct err *err);
void store_free(struct store *s); /* no job may run; NULL is fine */
DEFINE_AUTO(store, struct store, store_free)
#define auto_store auto_with(auto_clean_store) struct store *

/* Sets the retry policy of later requests; running ones use it from their next failure. Any thread. */
void store_set_retry(struct store *s, struct store_retry retry);

/* The capabilities of a store. Generic code checks these, never a store's name. */
enum store_conditions {
    STORE_CONDITIONS_HONOURED, /* conditional writes always work */
    STORE_CONDITIONS_VARY,     /* it depends on the server: store_wants_probe, store_honours */
};

struct store_caps {
    enum creds_kind creds;   /* CREDS_NONE: it needs no credentials */
    bool lists_sorted;       /* a listing is in byte order of keys */
    bool lists_from_any_key; /* ... and start_after may be any key: several readers can share one listing */
    bool lists_best_digest;  /* a listing has the strongest checksum of each object; if not, HEAD may */
    enum store_conditions conditions;
    enum hash_kind upload_digest; /* the kind that confirms a multipart upload */
    uint64_t part_bytes_min;      /* of every part but the last */
    unsigned parts_max;
};

const struct store_caps *store_caps(const struct store *s);
enum creds_kind store_creds_kind(const struct scheme *scheme); /* NULL: CREDS_NONE */
const struct creds *store_creds(const struct store *s);        /* borrowed; NULL: the store needs none */

/* Of the URI; borrowed from the store. */
const char *store_scheme(const struct store *s);
const char *
store_endpoint(const struct store *s); /* the server's URL without a trailing '/'; NULL: the store has no server */
struct str store_bucket(const struct store *s);
struct str store_prefix(const struct store *s); /* a key prefix: with its trailing '/' if the URI had one */

/* Sets which authorities the workers' web trusts for this store, and which addresses it may connect to. Borrowed
 * from it. */
void store_trust(const struct store *s, struct web_options *ret);

/* Initial rate of GETs a second that the store recommends; it should double at most every twenty minutes. 0: no
 * recommendation. */
uint64_t store_reads_at_first(const struct store *s);

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* How a conditional write protected an object of another writer. */
enum store_guard {
    GUARD_CONDITION, /* the store is known to honour the condition, or the write had no condition */
    GUARD_UNPROVEN,  /* the condition was sent after a HEAD; the store was not yet seen to honour it */
    GUARD_HEAD,      /* the store refuses or ignores the condition: only the HEAD directly before */
    GUARDS
};

struct store_reply {
    int code;          /* 0 or -(enum err_code) */
    struct err err;    /* names the object, the cause, the HTTP status */
    int status;        /* HTTP, of the last answer; 0: none came */
    bool may_retry;    /* passing: reset, timeout, 408, 429, 5xx */
    bool is_malformed; /* not a reply of an object store: retried, because a proxy may have sent it */
    bool slow_down;    /* the store asked for fewer requests: 429, 503 */
    bool turned_away;  /* the server refused the connection while it serves others: this does not count as an attempt */
    unsigned attempts_max;      /* 401, 403: maximum of attempts; 0: no such limit */
    uint64_t retry_after_ns;    /* Retry-After of the reply; 0: none */
    struct store_object object; /* the object as the reply describes it; borrowed until on_done returns */
    struct str upload_id;       /* store_upload_begin; borrowed until on_done returns */
    struct str version;         /* a PUT, or a deletion by S3: the version or delete marker that it made, for
                                   store_delete_version; empty: none; borrowed until on_done returns */
    uint64_t first_byte_ns;
    uint64_t total_ns;
    unsigned requests;       /* HTTP requests this job made, attempts and side requests included */
    bool hedged;             /* a GET that was sent twice, and this is one of the two replies */
    enum store_guard guard;  /* how a conditional write protected another writer's object */
    unsigned heads;          /* of `requests`: HEADs before a write */
    struct digest composite; /* checksum over the digests of the object's parts, in order: S3's composite checksums, and
                                the ETag of a multipart object if it has that form */
    unsigned composite_parts; /* how many parts; 0: unknown */
    bool rewritten;           /* probe: the store ignored a condition and wrote the object again */
    struct str owner;         /* HEAD: of the object's metadata; borrowed until on_done returns */
    struct str writer;        /* HEAD: the same of the idempotency_token */
    unsigned skipped; /* list, file://: names on this page that are not objects (links that leave the root, or lead to a
                         directory or nowhere; sockets, pipes, devices) */
    struct str last_skipped; /* the last of these names; borrowed until on_done returns */
};

/* Is another attempt due after `attempt` attempts (1: one was made) in `elapsed_ns`? If so, sets its delay,
 * jittered and never below Retry-After. A reply with `turned_away` is always retried, and the caller counts
 * neither that attempt nor its time. */
bool store_retry_delay(struct store *s, const struct store_reply *r, unsigned attempt, uint64_t elapsed_ns,
                       uint64_t *ret_delay_ns);

/* How long a request is retried if every reply is like *r. */
uint64_t store_retry_limit_ns(struct store *s, const struct store_reply *r);

/* Describes the request that waits for a retry: "attempt 3 of 8 in 2 s: s3://b/k: 503 SlowDown". False: no request
 * failed twice, or requests have succeeded within two seconds of each failure. Any thread. */
bool store_retrying(struct store *s, char *buf, size_t size);

/* Has no request succeeded since one failed two seconds ago or earlier? *ret_cause is that of the last retry. Any
 * thread. */
bool store_is_stuck(struct store *s, struct err *ret_cause);

/* Count of retries that were sent or are due. Any thread. */
uint64_t store_retries(const struct store *s);

/* Whether a byte of any answer has come over HTTP. Any thread. */
bool store_has_answered(const struct store *s);

struct store_job;
void store_cancel(struct store_job *j); /* on_done follows with ERR_CANCELLED, after this returns */
void store_resume(struct store_job *j); /* a GET whose on_data answered WEB_PAUSE */

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct store_get {
    const struct store_object
        *object; /* copied. ETag or generation pin it: another state is ERR_CHANGED, and the error names both */
    uint64_t offset;
    uint64_t len; /* offset 0 and len size_bytes: the whole, without a Range header */
    struct rate *rate;
    unsigned attempts;   /* made before for these bytes */
    bool new_connection; /* the last reply's body was damaged: its connection may have bytes of it left */
    bool patient;        /* read a slow body to its end: an earlier attempt was already cancelled for slowness */
    void *ctx;
    /* Called with the object as the headers describe it, before the first byte. Its digest selects the hash to
     * compute (HASH_NONE: none). Not called for errors. May be NULL. */
    void (*on_head)(void *ctx, const struct store_object *object);
    /* Delivers bytes in order, never more than `len` in total. Returns 0, WEB_PAUSE, or a negative code to abort. */
    int (*on_data)(void *ctx, const char *bytes, size_t len);
    /* code 0 only if exactly `len` bytes were delivered. */
    void (*on_done)(void *ctx, const struct store_reply *r);
};
struct store_job *store_get(struct store *s, struct worker *w, const struct store_get *g);

typedef void store_done(void *ctx, const struct store_reply *r);

/* Reads the metadata, with the strongest full-object checksum that the store returns (S3: checksum mode). */
struct store_job *store_head(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx);

/* The same for an object that may equal `size_bytes` bytes of the caller: if the store has no checksums (file://)
 * and the size is equal, it reads the object to compute one of `kind`. */
struct store_job *store_head_digest(struct store *s, struct worker *w, struct str key, uint64_t size_bytes,
                                    enum hash_kind kind, store_done *done, void *ctx);

/* One page of a listing, in byte order of keys. */
struct store_page {
    struct str prefix;
    struct str start_after; /* only keys greater than this; empty: from the start */
    struct str token;       /* continues at a reply's next_token; then start_after is ignored */
    struct str end_before;  /* only keys less than this, if the store supports it; empty: to the end. Callers check */
    unsigned keys_max;      /* 0: the store's own most */
    bool delimited;         /* with delimiter '/': common prefixes arrive as objects whose key ends in '/', whose etag
                             is empty and whose generation is 0 */
    void *ctx;
    /* `objects` and `next_token` (empty: this was the last page) are borrowed until it returns; NULL when r->code < 0.
     * The only callback, exactly once. */
    void (*on_done)(void *ctx, const struct store_reply *r, const struct store_object *objects, size_t count,
                    struct str next_token);
};
struct store_job *store_list_page(struct store *s, struct worker *w, const struct store_page *p);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* ABSENT: only if no such object exists. SAME: only if the object is still the one that `match` names. A write
 * whose condition fails is ERR_EXISTS. */
enum store_if { STORE_IF_ANY, STORE_IF_ABSENT, STORE_IF_SAME };

struct store_body {
    uint64_t len;
    struct digest digest; /* of these bytes if known (sent along for the store to check); else HASH_NONE */
    void *ctx;
    ssize_t (*read)(void *ctx, char *buf, size_t room, uint64_t offset); /* bytes, -1 aborts; offset may go back */
};

/* The object to write. */
struct store_write {
    struct str key;
    struct str upload_id; /* of a multipart upload */
    enum store_if condition;
    struct str match;             /* STORE_IF_SAME: store_object_tag */
    struct str idempotency_token; /* stored in the object's metadata: a retry that finds it has succeeded */
    struct str owner;             /* stored in the metadata: the writer; empty: not stored */
    struct str storage_class;     /* empty: the bucket's */
    struct str content_type;      /* empty: application/octet-stream */
    enum hash_kind digest_kind;   /* multipart: digest of the parts, and of the whole object if the kind combines */
    uint64_t part_bytes;          /* of every part but the last: file:// puts part N at (N - 1) * part_bytes */
};

/* The body is read on the loop. r->object: as the store confirmed it. */
struct store_job *store_put(struct store *s, struct worker *w, const struct store_write *u,
                            const struct store_body *body, struct rate *rate, store_done *done, void *ctx);

/* Is it still unknown whether this store honours the conditions of a PUT? Any thread. */
bool store_wants_probe(const struct store *s);
/* Is this store known to honour the condition of a PUT, or of the completion of a multipart upload? Any thread. */
bool store_honours(const struct store *s, enum store_if condition, bool multipart);

/* Tests it with an object that the caller just wrote: sends the same bytes with the same arguments under
 * conditions that fail. A store that honours them refuses; another one writes the object again (`rewritten`).
 * Needs only the permission for PUT, and leaves nothing behind. */
struct store_job *store_probe(struct store *s, struct worker *w, const struct store_write *u,
                              const struct store_body *body, struct rate *rate, store_done *done, void *ctx);

/* Multipart: begin gives r->upload_id, parts 1..10000 in any order (r->object.etag: the part's),
 * then complete (r->object as confirmed) or abort. A part has 5 MiB at least, but for the last. Abort of an unknown
 * upload is success; complete of one is ERR_NOT_FOUND, or success if this idempotency_token put the object there. */
struct store_part {
    unsigned number;
    struct str etag;
    struct digest digest;
    uint64_t size_bytes;
};
struct store_parts {
    const struct store_part *list;
    size_t count;
    struct digest whole; /* of the object; HASH_NONE: not known */
};
struct store_job *store_upload_begin(struct store *s, struct worker *w, const struct store_write *u, store_done *done,
                                     void *ctx);
struct store_job *store_upload_part(struct store *s, struct worker *w, const struct store_write *u, unsigned number,
                                    const struct store_body *body, struct rate *rate, store_done *done, void *ctx);
struct store_job *store_upload_complete(struct store *s, struct worker *w, const struct store_write *u,
                                        const struct store_parts *parts, store_done *done, void *ctx);
struct store_job *store_upload_abort(struct store *s, struct worker *w, const struct store_write *u, store_done *done,
                                     void *ctx);

/* Aborts every unfinished upload of exactly this key and removes its parts, for a writer that died before it recorded
 * the upload ID. No other writer may use the key. */
struct store_job *store_upload_sweep(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx);

/* A missing object counts as deleted. */
struct store_job *store_delete(struct store *s, struct worker *w, struct str key, store_done *done, void *ctx);
/* Removes one version or delete marker for good. S3 has a permission of its own for it. */
struct store_job *store_delete_version(struct store *s, struct worker *w, struct str key, struct str version,
                                       store_done *done, void *ctx);
