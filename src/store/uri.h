/* SPDX-License-Identifier: Apache-2.0 */
/* uri.h - parses the URI of a bucket or directory: s3://bucket/prefix, gs://bucket/prefix, file:///directory. Pure.
 * A key is taken byte for byte: nothing is percent-decoded, '?' and '#' are bytes like any other. */
#pragma once

#include "util/err.h"
#include "util/str.h"

struct scheme;

/* Views into the text that was parsed. */
struct store_uri {
    const struct scheme *scheme;
    struct str bucket; /* empty for file:// */
    struct str prefix; /* for file:// the absolute path, with its leading '/' */
};

enum { URI_KEY_MAX = 1024 }; /* what S3 and GCS take */

/* ERR_INVALID (CIS_URI_INVALID): the sentence names what is wrong. */
must_check int store_uri_parse(struct str text, struct store_uri *ret, struct err *err);
