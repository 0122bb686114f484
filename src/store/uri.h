/* SPDX-License-Identifier: Apache-2.0 */
/* uri.h - reads and checks the URI of a bucket or directory. Pure. */
#pragma once

#include "util/err.h"
#include "util/uri.h"

enum { URI_KEY_MAX = 1024 }; /* what S3 and GCS take */

/* ERR_INVALID (CIS_URI_INVALID): the sentence names what is wrong. */
must_check int store_uri_parse(struct str text, struct uri *ret, struct err *err);
