/* SPDX-License-Identifier: Apache-2.0 */
#include "util/err_kind.h"
#include <stdio.h>

static const struct {
    enum err_id id;
    enum err_kind kind;
} kinds[] = {
    {CIS_CREDENTIALS_REJECTED, ERR_KIND_DENIED},
    {CIS_ACCESS_DENIED, ERR_KIND_DENIED},
    {CIS_PAYER_MISSING, ERR_KIND_DENIED},
    {CIS_NO_CREDENTIALS, ERR_KIND_DENIED},
    {CIS_TOKEN_EXCHANGE_FAILED, ERR_KIND_DENIED},
    {CIS_CLOCK_SKEW, ERR_KIND_UNAUTHENTICATED},
    {CIS_SERVICE_ACCOUNT_NOT_ANNOTATED, ERR_KIND_DENIED},
    {CIS_BROKER_NAMESPACE_DENIED, ERR_KIND_IDENTITY_GONE},
    {CIS_IDENTITY_NOT_FOUND, ERR_KIND_IDENTITY_GONE},
    {CIS_SECRET_INVALID, ERR_KIND_DENIED},
    {CIS_IDENTITY_UNSUPPORTED, ERR_KIND_DENIED},
    {CIS_EXPORT_IDENTITY_GONE, ERR_KIND_UNAUTHENTICATED},
    {CIS_OBJECT_NOT_FOUND, ERR_KIND_OBJECT_NOT_FOUND},
    {CIS_KEY_NOT_FOUND, ERR_KIND_EMPTY},
    {CIS_SOURCE_EMPTY, ERR_KIND_EMPTY},
    {CIS_BUCKET_NOT_FOUND, ERR_KIND_BUCKET_NOT_FOUND},
    {CIS_STORE_UNREACHABLE, ERR_KIND_UNREACHABLE},
    {CIS_REPLY_TIMEOUT, ERR_KIND_UNREACHABLE},
    {CIS_CERTIFICATE_UNTRUSTED, ERR_KIND_UNREACHABLE},
    {CIS_CONNECTION_LOST, ERR_KIND_UNREACHABLE},
    {CIS_NOT_HTTP, ERR_KIND_UNREACHABLE},
    {CIS_ENDPOINT_WITHOUT_TLS, ERR_KIND_UNREACHABLE},
    {CIS_ENDPOINT_WITH_TLS, ERR_KIND_UNREACHABLE},
    {CIS_PROXY_INVALID, ERR_KIND_UNREACHABLE},
    {CIS_STORE_THROTTLED, ERR_KIND_STORE_BUSY},
    {CIS_STORE_FAILED, ERR_KIND_STORE_BUSY},
    {CIS_OBJECT_CHANGED, ERR_KIND_CHANGED},
    {CIS_OTHER_RUN_UNFINISHED, ERR_KIND_CHANGED},
    {CIS_SOURCE_TOO_LARGE, ERR_KIND_TOO_LARGE},
    {CIS_KEY_LISTED_TWICE, ERR_KIND_LISTED_TWICE},
    {CIS_STORAGE_CLASS_UNKNOWN, ERR_KIND_STORAGE_CLASS_UNKNOWN},
    {CIS_CHECKSUM_MISMATCH, ERR_KIND_MISMATCH},
    {CIS_BROKER_CALLER_UNKNOWN, ERR_KIND_CALLER_UNKNOWN},
    {CIS_BROKER_OTHER_VOLUME, ERR_KIND_CALLER_DENIED},
    {CIS_BROKER_THROTTLED, ERR_KIND_THROTTLED},
};

enum err_kind err_kind_of(enum err_id id)
{
    for (size_t i = 0; i < countof(kinds); i++)
        if (kinds[i].id == id)
            return kinds[i].kind;
    return ERR_KIND_OTHER;
}

enum err_kind err_kind_of_text(const char *id)
{
    struct err ignored;
    uint64_t number;
    struct str text = id ? str_of(id) : STR_NULL;
    if (!str_starts(text, STR("CIS")) || str_to_u64(str_from(text, 3), &number, &ignored) < 0 || number > 9999)
        return ERR_KIND_OTHER;
    return err_kind_of((enum err_id)number);
}

const char *err_id_text(enum err_id id, char buf[ERR_ID_TEXT_MAX])
{
    buf[0] = '\0';
    if (id)
        snprintf(buf, ERR_ID_TEXT_MAX, "CIS%04u", (unsigned)id);
    return buf;
}
