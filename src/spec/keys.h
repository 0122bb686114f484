/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - Every name of a volume's specification: where its value is stored, its type, default and bounds.
 * Code: keys.c and value.c. */
#pragma once

#include "spec/spec.h"
#include "util/json.h"

enum spec_type {
    TYPE_TEXT,     /* char * */
    TYPE_URI,      /* struct spec_uri of at least .least bytes */
    TYPE_PATH,     /* char *, relative, without ".." */
    TYPE_PEM,      /* char *: certificates */
    TYPE_BOOL,     /* bool */
    TYPE_ENUM,     /* uint64_t: index into .choices */
    TYPE_FLAGS,    /* uint64_t: a bit for each of .choices; written as a list */
    TYPE_COUNT,    /* uint64_t within bounds */
    TYPE_MODE,     /* uint64_t: octal permission bits */
    TYPE_BYTES,    /* uint64_t: a quantity */
    TYPE_DURATION, /* uint64_t in ns, stored in whole ms */
    TYPE_PATTERNS, /* struct spec_list of globs */
    TYPE_PAYER,    /* char *: a bool or a billing project */
    TYPE_SOURCES,  /* struct spec_parts */
};

enum spec_change {
    CHANGE_NEVER,
    CHANGE_FREELY,
    CHANGE_WITH_SOURCE, /* only with its BucketSource */
};

struct spec_key {
    const char *name;
    enum spec_type type;
    size_t offset;            /* in struct spec */
    const char *choices;      /* "eager gate none" */
    const char *cluster_only; /* choices that need Kubernetes, or ANY_VALUE */
    uint64_t least, most;
    const char *alphabet; /* characters that a text may have besides letters and digits; NULL: any */
    const char *initial;  /* default, as a user would write it; NULL: zero */
    enum spec_change change;
    bool is_parameter; /* a StorageClass's; otherwise BucketSource's */
};

#define SPEC_URI_FORMS "expected s3://bucket/prefix/, gs://bucket/prefix/ or file:///directory/"
#define ANY_VALUE "*" /* any value but the initial one */

extern const struct spec_key spec_keys[];
extern const size_t spec_key_count;

/* NULL and err set (CIS_PARAMETER_UNKNOWN) if the name is unknown. */
const struct spec_key *spec_key_find(struct str name, struct err *err);

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Sets the value of `key` in s; a failure (CIS_PARAMETER_INVALID) leaves s unchanged. The second one is for a record:
 * it takes a URI that only new values may not have, because the volume exists. */
must_check int spec_value_parse(const struct spec_key *key, struct spec *s, struct str text, struct err *err);
must_check int spec_value_read(const struct spec_key *key, struct spec *s, struct str text, struct err *err);
bool spec_value_same(const struct spec_key *key, const struct spec *a, const struct spec *b);
/* Sets `path` in j, unless the value is missing. */
void spec_value_write(const struct spec_key *key, const struct spec *s, json *j, const char *path);
void spec_value_free(const struct spec_key *key, struct spec *s); /* its memory */
