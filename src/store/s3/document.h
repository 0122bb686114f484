/* SPDX-License-Identifier: Apache-2.0 */
/* document.h - parses S3's XML replies: lists of objects and uploads, Error, and multipart results.
 * home: its user's thread. Pure. Its limits are those of creds/xml.h. */
#pragma once

#include "page.h"

struct s3_document;

/* Every field of any reply; missing texts are empty. Borrowed from the parser. */
struct s3_reply {
    struct str root; /* "ListBucketResult", "Error", ... */
    struct str code; /* of an Error */
    struct str message;
    struct str region;    /* of an Error: AuthorizationHeaderMalformed, PermanentRedirect */
    struct str upload_id; /* of InitiateMultipartUploadResult */
    struct str etag;      /* of CompleteMultipartUploadResult */
    struct str checksum;  /* of a Complete: the value, base64 */
    enum hash_kind checksum_kind;
    bool checksum_is_composite;
    struct str next_token; /* of a list; decoded */
    bool is_list;          /* it has entries, or says whether more follow */
    bool is_truncated;
};

/* Parses into `page`, in document order: objects and common prefixes of a ListBucketResult, and uploads of a
 * ListMultipartUploadsResult. A common prefix ends in the delimiter and has no etag; an upload's ID is in etag. */
struct s3_document *s3_document_new(struct object_page *page);
void s3_document_free(struct s3_document *x);

/* Parses one document and drops the previous one. */
must_check int s3_document_read(struct s3_document *x, struct str document, struct err *err);
const struct s3_reply *s3_document_reply(const struct s3_document *x);
