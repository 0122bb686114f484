/* SPDX-License-Identifier: Apache-2.0 */
/* bucket.h - The shared parts of the bucket server. It implements enough of S3 and of the GCS JSON API for our engines
 * and for others. Synthetic objects cost no memory, and it is fast enough for benchmarks. Rules inject faults. It
 * checks no signature: real servers do that. home: a connection belongs to one thread; objects and rules are shared
 * under locks of their own. */
#pragma once

#include "util/err.h"
#include "util/hash.h"
#include "util/str.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LENGTH_UNTOLD UINT64_MAX /* the end of the connection is the body's */

enum { KEY_MAX_BYTES = 1024, HEAD_MAX = 32 << 10, PATTERN_BYTES = 64 << 20 };

/* ---- objects (bucket_objects.c) ---------------------------------------------------------------------------------- */

struct piece { /* bytes that a part, a PUT or a resumable chunk brought */
    unsigned number;
    uint64_t size;
    struct digest crc32c, crc64, md5;
    char *content; /* owned; NULL when contents are not kept */
};

/* ---- uploaded bytes (bucket_content.c) --------------------------------------------------------------------------- */

/* Those of an object that was replaced or removed go when the last answer that carries them is sent. */
struct content {
    _Atomic unsigned holders;
    char *bytes; /* owned */
};
struct content *content_new(struct piece *pieces, size_t count); /* all in one; NULL where they were not kept */
struct content *content_hold(struct content *c);                 /* NULL is fine */
void content_drop(struct content *own_c);                        /* NULL is fine */
void pieces_free(struct piece *pieces, size_t count);            /* what they hold */

/* An object as a request sees it: synthetic, or uploaded. */
struct thing {
    char key[KEY_MAX_BYTES + 1];
    uint64_t size;
    uint64_t generation;
    uint64_t pattern_at;     /* synthetic: where its bytes begin in the pattern */
    struct content *content; /* uploaded and kept, else NULL; held, for thing_done, where objects_find found it */
    bool synthetic;
    char etag[40];                                  /* without quotes */
    char crc32c[16], crc32[16], crc64[16], md5[32]; /* base64; empty: the bucket does not tell */
    char meta[512];                                 /* uploaded: header lines of x-amz-meta-* and x-goog-meta-* */
};

struct digests_told {
    bool crc32c, crc32, crc64, md5;
};
extern struct digests_told told;
extern const char *bucket_name;
extern bool keep_content;
extern bool heedless_put, heedless_complete; /* of conditions on a write, as some servers are */
extern bool composite;     /* objects of parts have a composite CRC32C, and no checksum of the whole */
extern bool odd_roots;     /* another name for the root of each document but errors */
extern bool unconditional; /* 501 to a condition on a write, as some servers do */
extern bool old_fashioned; /* 501 to a request that names a checksum other than Content-MD5, as some servers do */

/* PREFIX:COUNT:SIZE[-SIZE][:flat|deep|skewed] */
must_check int objects_add(struct str spec, struct err *err);
must_check int objects_begin(struct err *err); /* after the last objects_add */
int objects_pattern_fd(void);
const char *objects_pattern(void); /* the same, mapped */

bool objects_find(struct str key, struct thing *ret);
bool objects_have(struct str key);
void thing_done(struct thing *t);
#define auto_thing auto_with(thing_done) struct thing
/* An overwrite: the next generation, other bytes. False if there is no such object. */
bool objects_change(struct str key);
void objects_remove(struct str key); /* synthetic ones too */
void objects_heal(void);             /* every synthetic object is as it was */
/* Takes the content of the pieces. `ret` holds nothing. */
void objects_put(struct str key, struct piece *pieces, size_t count, const char *meta, struct thing *ret);

/* The first object at or after `key` (after it, if `past`), in byte order; false at the end. */
struct cursor {
    uint64_t synthetic;
    size_t uploaded;
};
void objects_seek(struct cursor *c, struct str key, bool past);
bool objects_next(struct cursor *c, struct thing *ret);
void objects_text_of_uploads(struct sbuf *b); /* GET /_objects: one JSON object a line */

/* Entries of synthetic objects as a listing has them, from `from` up to the key `end` and at most `max`: rendered
 * once for all, back to back in a file. False without entries, or while uploads or removals are between them. */
enum protocol { S3, GCS };
struct objects_page {
    uint64_t count;
    bool truncated;
    char last[KEY_MAX_BYTES + 1];
    int fd; /* borrowed */
    uint64_t at, len;
};
bool objects_page(enum protocol p, const struct cursor *from, const char *end, uint64_t max, struct objects_page *ret);
uint64_t objects_synthetic_count(void);
void entry_s3(const struct thing *t, struct sbuf *b);
void entry_gcs(const struct thing *t, struct sbuf *b);

/* ---- requests and replies (bucket_connection.c) ------------------------------------------------------------------ */

struct request {
    struct str method, path, query, head; /* views of the connection's buffer; path is still encoded */
    char bucket[256];
    char key[KEY_MAX_BYTES + 1];
    uint64_t body_len;
    bool is_gcs;
};

enum operation { OP_GET, OP_HEAD, OP_LIST, OP_PUT, OP_POST, OP_DELETE, OP_COUNT };
enum reply_end { END_KEEP, END_CLOSE, END_RESET, END_STALL };

enum { SEGMENTS_MAX = 8 };
struct segment {
    enum { SEGMENT_TEXT, SEGMENT_PATTERN, SEGMENT_FILE } from;
    const char *text; /* borrowed from the reply's text, or constant */
    int fd;
    uint64_t at;
    uint64_t len;
};

struct reply {
    int status;
    struct sbuf headers; /* "Name: value\r\n" each */
    struct sbuf text;    /* what text segments point into; do not grow it once they do */
    struct segment segments[SEGMENTS_MAX];
    unsigned segment_count;
    uint64_t body_len;       /* of the segments */
    uint64_t declared_len;   /* Content-Length */
    struct content *content; /* held: what a segment of it points into */
    bool no_body;            /* HEAD: the length is sent, the body is not */
    bool raw;                /* no head at all */
    enum reply_end end;
    uint64_t bytes_per_second; /* 0: at once */
    uint64_t delay_ns;
    uint64_t hold_until; /* so many requests of this operation came; 0: no hold */
    enum operation hold_for;
    uint64_t hold_rule; /* until this one has fired; 0: no hold */
};

struct str request_header(const struct request *r, const char *name);
/* The decoded value of ?name=value; false if it is not there. `room` counts the NUL. */
bool request_query(const struct request *r, const char *name, char *buf, size_t room);
bool request_asks(const struct request *r, const char *name); /* ?name, with or without value */
bool url_is_plain(char c);                                    /* does it stand for itself in a URL's path? */
size_t url_decode(struct str s, char *buf, size_t room);

void reply_text(struct reply *p, int status, const char *content_type, struct str text);
void reply_add(struct reply *p, struct segment s);
void reply_cut(struct reply *p, uint64_t len); /* what is sent of the body; declared_len stays */
void reply_flip(struct reply *p, uint64_t at); /* one wrong byte */
void reply_clear(struct reply *p);

/* ---- the two protocols --------------------------------------------------------------------------------------------
 * Called when the whole request is there; `body` has its bytes' digests (and the bytes, if they are kept or small). */
void s3_answer(const struct request *r, struct piece *body, struct reply *p);
void gcs_answer(const struct request *r, struct piece *body, struct reply *p);
void object_answer(const struct request *r, const struct thing *t, struct reply *p); /* bytes, with Range */
bool precondition_fails(const struct request *r, const struct thing *t);

/* ---- faults and counts (bucket_fault.c) -------------------------------------------------------------------------- */

enum operation operation_of(const struct request *r);

must_check int fault_add(struct str rule, struct err *err);
void faults_clear(void);
bool fault_has_fired(uint64_t rule); /* the first is 1; 0: no rule, which has fired */
void faults_text(struct sbuf *b);    /* GET /_fault: how often each rule fired, a JSON list in their order */

/* The action of the first rule that fits, or NULL. Always valid (rules are never freed). */
struct fault {
    char action[24];
    int64_t n;
    char text[512];
};
const struct fault *fault_for(enum operation op, const struct request *r);
bool fault_before(const struct fault *f, const struct request *r, struct reply *p); /* true: answered already */
void fault_after(const struct fault *f, const struct request *r, struct reply *p);

uint64_t requests_counted(enum operation op);
void count_request(enum operation op, const struct reply *p, uint64_t bytes_in);
void count_connection(void);
void count_turned_away(void);
void order_note(const struct request *r); /* of a GET of an object */
void order_text(struct sbuf *b);          /* GET /_order: keys of GETs as they came, a line each, at most 4 MiB */
void stats_text(struct sbuf *b);
void stats_clear(void);
