/* SPDX-License-Identifier: Apache-2.0 */
/* gcs.h - what the files of gs:// share. home of a gcs_job: its loop. */
#pragma once

#include "call.h"
#include "page.h"
#include "util/json.h"

#define GCS_HIDDEN ".cistern-uploads/" /* the parts of uploads, until they are composed */
#define GCS_OBJECT_FIELDS "name,size,generation,updated,crc32c,md5Hash,metadata"

enum { GCS_COMPOSE_MAX = 32, GCS_NAME_MAX = 128 };

struct gcs {
    char *base;    /* owned: "https://storage.googleapis.com" */
    char *billing; /* owned: the project that pays, encoded; NULL */
    struct creds *creds;
};

struct gcs_job {
    struct call call;
    struct page page;
    struct sbuf token;
    const char *right;
    /* COMPLETE: `count` pieces of `level` become groups of GCS_COMPOSE_MAX, one after the other. */
    unsigned level;
    size_t count;
    size_t group;
    /* ABORT, SWEEP, and the end of COMPLETE: what is deleted, page by page. */
    size_t swept;
    unsigned rounds;
    struct store_reply confirmed; /* COMPLETE: kept while the parts are removed */
};

static inline struct gcs_job *gcs_of(struct call *c)
{
    return container_of(c, struct gcs_job, call);
}

/* Starts a URL: "<base><path>/b/<bucket>/o", and "/<name>" if it has one. Then parameters, then gcs_ask. */
void gcs_begin(struct call *c, const char *method, const char *path, struct str name);
void gcs_begin_compose(struct call *c, struct str name); /* POST .../o/<name>/compose */
void gcs_param(struct call *c, const char *name, struct str value);
void gcs_param_u64(struct call *c, const char *name, uint64_t value);
void gcs_ask(struct call *c); /* the headers that every request has; last */

/* Ends with what the refusal means. */
void gcs_refused(struct call *c, int status);

int gcs_garbled(struct err *err); /* what came is no answer of GCS's: why is in `err` already */

/* An object resource; strings are borrowed from the tree. */
must_check int gcs_read_object(const json *j, struct object *ret, struct err *err);

/* A page of a listing: objects behind `after`, and common prefixes among them, in order of keys. */
must_check int gcs_parse_list(struct str document, struct str after, struct page *page, struct sbuf *ret_token,
                              struct err *err);

/* steps.build of a request for the object's resource. */
must_check int gcs_build_metadata(struct call *c, struct err *err);

/* reply.object from the object resource in c->got. */
must_check int gcs_describe(struct call *c, struct err *err);

/* The same; and does it carry this job's upload id? What nobody can read is neither ours nor another's: ERR_CORRUPT. */
must_check int gcs_describe_whose(struct call *c, bool *ret_is_ours, struct err *err);

/* Starts an upload of one request, the job's body follows. `is_final`: with the job's metadata and condition. */
void gcs_send_object(struct call *c, struct str name, bool is_final);

/* A resource with the content type, the storage class and the upload id of the job. The caller frees. */
json *gcs_new_resource(const struct call *c);

extern const struct call_steps gcs_get_steps, gcs_head_steps, gcs_list_steps, gcs_put_steps, gcs_part_steps,
    gcs_complete_steps, gcs_sweep_steps, gcs_delete_steps;
void gcs_begin_upload(struct call *c);
