/* SPDX-License-Identifier: Apache-2.0 */
/* xml.h - S3's answers, parsed when they are whole: lists of objects and uploads, Error, multipart results.
 * home: whoever feeds it. Pure. A document type, an entity, a depth over 16 or a text over 64 KiB is ERR_CORRUPT. */
#pragma once

#include "page.h"

struct xml;

/* Everything that any answer may say; texts are empty where it said nothing. Borrowed from the parser. */
struct xml_answer {
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
    struct str access_key_id; /* of AssumeRoleWithWebIdentityResponse, as what follows */
    struct str secret;
    struct str session_token;
    struct str expiration;
};

/* Objects of a ListBucketResult, common prefixes among them (their key ends in the delimiter, their etag is empty), and
 * uploads of a ListMultipartUploadsResult (the etag is the upload's id) go to `page`, in the order of the document. */
struct xml *xml_new(struct page *page);
void xml_free(struct xml *x);
DEFINE_AUTO(xml, struct xml, xml_free)
#define auto_xml auto_with(auto_clean_xml) struct xml *

/* Reads one whole document, and forgets the one before. */
must_check int xml_read(struct xml *x, struct str document, struct err *err);
const struct xml_answer *xml_answer(const struct xml *x);
