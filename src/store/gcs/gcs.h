/* SPDX-License-Identifier: Apache-2.0 */
/* gcs.h - the interface between the files of gs://. home of a gcs_job: its loop.
 * Code: request.c, read.c and write.c. */
#pragma once

#include "call.h"
#include "page.h"
#include "util/json.h"

#define GCS_HIDDEN ".cistern-uploads/" /* prefix of the parts of uploads until they are composed */
#define GCS_OBJECT_FIELDS "name,size,generation,updated,crc32c,md5Hash,metadata"

enum { GCS_COMPOSE_MAX = 32, GCS_NAME_MAX = 128 };

struct gcs {
    char *base;    /* owned: "https://storage.googleapis.com" */
    char *billing; /* owned: the project that pays, encoded; NULL */
};

struct gcs_job {
    struct store_call call;
    struct object_page page;
    struct sbuf token;
    /* COMPLETE: the `count` pieces of `level` are composed in groups of GCS_COMPOSE_MAX, one after the other. */
    unsigned level;
    size_t count;
    size_t group;
    /* ABORT, SWEEP, and the end of COMPLETE: the objects to delete, page by page. */
    size_t swept;
    unsigned rounds;
    struct store_reply confirmed; /* COMPLETE: the reply, kept while the parts are removed */
};

static inline struct gcs_job *gcs_of(struct store_call *c)
{
    return container_of(c, struct gcs_job, call);
}

/* Starts a URL: "<base><path>/b/<bucket>/o", and "/<name>" if there is a name. Parameters follow, then gcs_ask. */
void gcs_begin(struct store_call *c, const char *method, const char *path, struct str name);
void gcs_begin_compose(struct store_call *c, struct str name); /* POST .../o/<name>/compose */
void gcs_param_u64(struct store_call *c, const char *name, uint64_t value);
void gcs_ask(struct store_call *c); /* adds the headers of every request; call it last */

/* Is it a 404 of the store? For requests of metadata and deletions, whose refusals are JSON. */
bool gcs_says_gone(const struct store_call *c, int status);

/* Ends the call with the error of the reply. */
void gcs_refused(struct store_call *c, int status);

/* An object resource; strings are borrowed from the tree. */
must_check int gcs_read_object(const json *j, struct store_object *ret, struct err *err);

/* Parses a page of a listing: objects after `after`, and common prefixes among them, in order of keys. */
must_check int gcs_parse_list(struct str document, struct str after, struct object_page *page, struct sbuf *ret_token,
                              struct err *err);

/* reply.object from the object resource in c->got. */
must_check int gcs_describe(struct store_call *c, struct err *err);

extern const struct call_steps gcs_get_steps, gcs_head_steps, gcs_list_steps, gcs_put_steps, gcs_part_steps,
    gcs_sweep_steps, gcs_delete_steps;
void gcs_complete(struct store_call *c);
void gcs_begin_upload(struct store_call *c);
