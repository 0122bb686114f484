/* SPDX-License-Identifier: Apache-2.0 */
/* s3.h - the interface between the files of s3://. home of an s3_job: its loop.
 * Code: request.c, condition.c, read.c and write.c. */
#pragma once

#include "call.h"
#include "creds/sigv4.h"
#include "document.h"
#include <stdatomic.h>

#define S3_META_UPLOAD_ID "x-amz-meta-cistern-upload-id"
#define S3_META_OWNER "x-amz-meta-cistern-owner"

/* HONOURED: it was seen to answer 412. IGNORED: it was seen to overwrite. REFUSED: it answers 501. */
enum s3_knowledge { S3_UNKNOWN, S3_HONOURED, S3_IGNORED, S3_REFUSED };

struct s3 {
    bool is_named; /* the options name an endpoint; else it is AWS's */
    bool path_style;
    bool tls;
    bool requester_pays;
    atomic_bool conditional;  /* the server has accepted a condition: a 501 has another cause */
    atomic_uchar known[2][2]; /* enum s3_knowledge: [of a completion][of If-Match, else If-None-Match] */
    struct sigv4_cache cache;
    pthread_mutex_t lock; /* guards the fields below: the bucket may be in another region */
    char *endpoint;       /* owned; NULL: AWS's, of the region */
    char region[64];
    char *base; /* owned: the part of every URL before the key */
};

struct s3_job {
    struct store_call call;
    const struct call_steps *steps; /* steps of its operation, for after the HEAD */
    struct object_page page;
    struct s3_document *document; /* owned; NULL before the first document */
    bool moved;                   /* redirected once already */
    bool bare;                    /* PUT, COMPLETE: send no condition, because the store refuses it */
    size_t swept;                 /* SWEEP: of page */
    struct str sweeping;          /* the upload ID that is being aborted; in page */
    bool aborted;                 /* one of page was, just now */
    unsigned rounds;              /* count of listed pages, over all attempts */
    char region[64];              /* that this exchange is signed for */
    size_t query_at;              /* in call.url */
};

static inline struct s3_job *s3_of(struct store_call *c)
{
    return container_of(c, struct s3_job, call);
}

/* The server: the endpoint of the options, or AWS's for the region. `buf` of TRUST_URL_MAX may be borrowed by *ret. */
struct endpoint;
must_check int s3_endpoint(const struct s3 *s3, char *buf, struct endpoint *ret, struct err *err);
bool s3_is_region(struct str s); /* by its characters and length only: servers other than AWS choose their own */
/* The part of every URL before the key: "https://host/bucket" or "https://bucket.host". NULL: see *err. */
char *s3_base_url(const struct store *s, const struct s3 *s3, struct err *err);

/* Starts a request: method and URL. `key` NULL ptr: the bucket. `query` sorted and encoded. */
void s3_begin(struct store_call *c, const char *method, struct str key, struct str query);

/* Adds the headers of every request, and signs it. `payload` is the hex SHA-256 of the body, or SIGV4_UNSIGNED. */
void s3_sign(struct store_call *c, struct str payload);

/* The hex SHA-256 of c->sent. buf of 65; returns a view. */
struct str s3_payload(struct store_call *c, char *buf);

/* Parses c->got. A document is recognised by its content, or by the name of its root, which some servers change.
 * False: it is another document, and the call has ended. S3 may answer 200 and fail afterwards, and a proxy's page
 * is XML, too. */
enum s3_reply_kind { S3_BEGUN, S3_COMPLETED, S3_OBJECTS, S3_UPLOADS };
must_check bool s3_parse(struct store_call *c, enum s3_reply_kind want, const struct s3_reply **ret);

/* S3 may send 200 early to keep the connection alive, and fail afterwards. Returns the status of its error document,
 * and clears c->success. */
int s3_late_status(struct store_call *c, int status);

/* Is it a 404 of the store? A proxy's does not mean that the object or the upload is gone. */
bool s3_says_gone(const struct store_call *c, int status);

/* Ends a failed call with its error, or repeats it after a redirect to another region. */
void s3_refused(struct store_call *c, int status);

/* call_steps.answered of a request whose reply has no document. */
void s3_end(struct store_call *c, int status);

/* Sets reply.object from the headers. `whole`: they describe the whole object. */
void s3_describe(struct store_call *c, bool whole);

/* Sets reply.composite from the reply about a multipart object. */
void s3_describe_parts(struct store_call *c, enum hash_kind kind, struct str checksum, bool is_composite,
                       struct str etag);

/* "x-amz-checksum-crc32c"; NULL for kinds that S3 has no header for. */
const char *s3_checksum_header(enum hash_kind kind);

extern const struct call_steps s3_get_steps, s3_head_steps, s3_list_steps;
extern const struct call_steps s3_put_steps, s3_begin_steps, s3_part_steps, s3_complete_steps, s3_abort_steps,
    s3_sweep_steps, s3_delete_steps, s3_probe_steps;

/* ---- condition.c ------------------------------------------------------------------------------------------------- */

void s3_add_condition(struct store_call *c);
/* Must a HEAD precede this write? Then it is sent, and the write follows. */
must_check bool s3_look_first(struct store_call *c);
/* Is the reply about the condition? Then the call continues by itself. */
must_check bool s3_condition_failed(struct store_call *c, int status);
void s3_written(struct store_call *c); /* the write succeeded; ends the call */
bool s3_wants_probe(const struct store *s);
bool s3_honours(const struct store *s, enum store_if condition, bool multipart);
