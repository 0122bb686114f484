/* SPDX-License-Identifier: Apache-2.0 */
/* spec_keys.h - every name that a volume's specification knows: where its value lives, its type, default and bounds. */
#pragma once

#include "util/json.h"
#include "volume/spec.h"

enum spec_type {
    TYPE_TEXT,     /* char * */
    TYPE_URI,      /* char *, not empty; its form is for spec_check() */
    TYPE_PATH,     /* char *, relative, never leaving its folder */
    TYPE_PEM,      /* char *: certificates */
    TYPE_BOOL,     /* bool */
    TYPE_ENUM,     /* uint64_t: index into .choices */
    TYPE_FLAGS,    /* uint64_t: a bit for each of .choices; written as a list */
    TYPE_COUNT,    /* uint64_t within bounds */
    TYPE_MODE,     /* uint64_t: octal permission bits */
    TYPE_BYTES,    /* uint64_t: a quantity */
    TYPE_DURATION, /* uint64_t in ns, kept in whole ms */
    TYPE_PATTERNS, /* struct spec_list of globs */
    TYPE_PAYER,    /* char *: a bool or a billing project */
    TYPE_SOURCES,  /* source.sources and its count */
    TYPE_LATER,    /* a name that the API has and this version does not serve: an error that says so */
};

enum spec_change {
    CHANGE_NEVER,
    CHANGE_FREELY,
    CHANGE_TO_EAGER,
    CHANGE_WITH_SOURCE, /* as its BucketSource does, and by nobody else */
};

struct spec_key {
    const char *name;
    enum spec_type type;
    size_t offset;       /* in struct spec */
    const char *choices; /* "eager lazy gate none" */
    const char *later;   /* those of them that this version does not serve, or LATER_ALL */
    const char *cluster; /* those of `later` that it does serve where there is a Kubernetes, or LATER_ALL */
    uint64_t least, most;
    const char *alphabet; /* of a text: what it may hold besides letters and digits; NULL: anything */
    const char *initial;  /* as a user would write it; NULL: zero */
    enum spec_change change;
    bool is_parameter; /* a StorageClass's; otherwise BucketSource's */
};

#define LATER_ALL "*" /* any value but the initial one */

extern const struct spec_key spec_keys[];
extern const size_t spec_key_count;

/* NULL and err set (CIS2001) if there is none. */
const struct spec_key *spec_key_find(struct str name, struct err *err);

/* Does this version act on the value that s has for `key`? If not, ERR_INVALID (CIS2003) names both. */
must_check int spec_key_check_served(const struct spec_key *key, const struct spec *s, struct err *err);

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Puts the value of `key` into s; on failure (CIS2002, CIS2003) it is as before. */
must_check int spec_value_parse(const struct spec_key *key, struct spec *s, struct str text, struct err *err);
bool spec_value_same(const struct spec_key *key, const struct spec *a, const struct spec *b);
/* Sets `path` in j, unless nothing was said. */
void spec_value_write(const struct spec_key *key, const struct spec *s, json *j, const char *path);
void spec_value_clear(const struct spec_key *key, struct spec *s);
