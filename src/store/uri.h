/* SPDX-License-Identifier: Apache-2.0 */
/* uri.h - s3://bucket/prefix, gs://bucket/prefix, file:///folder. Pure.
 * A key is taken as it stands, byte for byte: nothing is percent-decoded, '?' and '#' are bytes like any other. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum uri_scheme { URI_FILE, URI_S3, URI_GS };

/* Views into the text that was parsed. */
struct uri {
    enum uri_scheme scheme;
    struct str bucket; /* empty for file:// */
    struct str prefix; /* for file:// the absolute path, with its leading '/' */
};

enum { URI_KEY_MAX = 1024 }; /* what S3 and GCS take */

/* `text` as a sentence may show it: at most URI_SHOWN_MAX bytes, without what stands before an '@' in its authority,
 * which may be a password. buf of URI_SHOWN_ROOM; returns buf. */
enum { URI_SHOWN_MAX = 100, URI_SHOWN_ROOM = URI_SHOWN_MAX + 8 };
char *uri_shown(struct str text, char *buf);

/* ERR_INVALID tells by name what is wrong, and the advice says what to write instead. */
must_check int uri_parse(struct str text, struct uri *ret, struct err *err);
