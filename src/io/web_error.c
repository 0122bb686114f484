/* SPDX-License-Identifier: Apache-2.0 */
#include "web_error.h"

struct str web_origin(const char *url)
{
    struct str s = str_of(url);
    const char *slashes = url ? strstr(url, "://") : NULL;
    size_t host = slashes ? (size_t)(slashes - url) + 3 : 0;
    size_t end = host;
    while (end < s.len && s.ptr[end] != '/' && s.ptr[end] != '?' && s.ptr[end] != '#')
        end++;
    for (size_t i = end; i > host; i--)
        if (s.ptr[i - 1] == '@')
            return str_sub(s, i, end - i);
    return str_sub(s, 0, end);
}

/* What to do about it, by cause. */
enum cause { NO_ID, WAY, LATE, TRUST, BROKE, NOT_HTTP, DESCRIPTORS };

static int advise(enum cause cause, struct err *err)
{
    switch (cause) {
    case WAY:
        return err_advise(err, 1611, "check the endpoint, the name service, and any proxy");
    case LATE:
        return err_advise(err, 1612, "check the network, and whether the store is overloaded");
    case TRUST:
        return err_advise(err, 1613, "check --ca-file and the certificate of the store");
    case BROKE:
        return err_advise(err, 1614, "it is tried again while attempts are left; check the network");
    case NOT_HTTP:
        return err_advise(err, 1615, "check that the endpoint is an object store, and any proxy between");
    case DESCRIPTORS:
        return err_advise(err, 1616, "raise the limit of open files (ulimit -n)");
    case NO_ID:
        break;
    }
    return -(int)err->code;
}

/* %.*s is the origin. Where libcurl's own words add something, they follow after a colon. */
static const struct meaning {
    CURLcode code;
    enum err_code means;
    enum cause cause;
    bool wants_detail;
    const char *sentence;
} meanings[] = {
    {CURLE_URL_MALFORMAT, ERR_INVALID, WAY, true, "'%.*s' is not the beginning of a URL"},
    {CURLE_UNSUPPORTED_PROTOCOL, ERR_INVALID, WAY, true, "'%.*s' is neither http:// nor https://"},
    {CURLE_COULDNT_RESOLVE_HOST, ERR_IO, WAY, false, "cannot find the address of '%.*s'"},
    {CURLE_COULDNT_RESOLVE_PROXY, ERR_IO, WAY, true, "cannot find the address of the proxy for '%.*s'"},
    {CURLE_PROXY, ERR_IO, WAY, true, "the proxy for '%.*s' failed"},
    {CURLE_COULDNT_CONNECT, ERR_IO, WAY, true, "cannot connect to '%.*s'"},
    {CURLE_OPERATION_TIMEDOUT, ERR_TIMEOUT, LATE, true, "'%.*s' did not answer in time"},
    {CURLE_SSL_CONNECT_ERROR, ERR_IO, TRUST, true, "cannot agree on TLS with '%.*s'"},
    {CURLE_PEER_FAILED_VERIFICATION, ERR_DENIED, TRUST, true, "the certificate of '%.*s' is not to be trusted"},
    {CURLE_SSL_ISSUER_ERROR, ERR_DENIED, TRUST, true, "the certificate of '%.*s' is not to be trusted"},
    {CURLE_SSL_CACERT_BADFILE, ERR_INVALID, TRUST, true, "cannot read the certificates to check '%.*s' against"},
    {CURLE_SSL_CERTPROBLEM, ERR_INVALID, TRUST, true, "cannot use the client certificate for '%.*s'"},
    {CURLE_SSL_CIPHER, ERR_UNSUPPORTED, TRUST, true, "no cipher in common with '%.*s'"},
    {CURLE_SSL_SHUTDOWN_FAILED, ERR_IO, BROKE, true, "the TLS connection to '%.*s' did not end well"},
    {CURLE_GOT_NOTHING, ERR_IO, BROKE, false, "'%.*s' closed the connection without an answer"},
    {CURLE_SEND_ERROR, ERR_IO, BROKE, true, "the connection to '%.*s' broke while sending"},
    {CURLE_RECV_ERROR, ERR_IO, BROKE, true, "the connection to '%.*s' broke while receiving"},
    {CURLE_PARTIAL_FILE, ERR_IO, BROKE, true, "'%.*s' closed the connection in the middle of an answer"},
    {CURLE_SEND_FAIL_REWIND, ERR_IO, BROKE, false, "'%.*s' wants the body again and it cannot be read again"},
    {CURLE_ABORTED_BY_CALLBACK, ERR_IO, NO_ID, false, "what is sent to '%.*s' cannot be read"},
    {CURLE_READ_ERROR, ERR_IO, NO_ID, false, "what is sent to '%.*s' cannot be read"},
    {CURLE_WEIRD_SERVER_REPLY, ERR_CORRUPT, NOT_HTTP, true, "the answer of '%.*s' is not HTTP"},
    {CURLE_BAD_CONTENT_ENCODING, ERR_CORRUPT, NOT_HTTP, true, "the answer of '%.*s' is wrongly encoded"},
    {CURLE_FILESIZE_EXCEEDED, ERR_CORRUPT, NOT_HTTP, true, "the answer of '%.*s' is too large"},
    {CURLE_WRITE_ERROR, ERR_CORRUPT, NOT_HTTP, true, "the answer of '%.*s' cannot be taken apart"},
    {CURLE_OUT_OF_MEMORY, ERR_NO_SPACE, NO_ID, false, "no memory for a request to '%.*s'"},
    {CURLE_NO_CONNECTION_AVAILABLE, ERR_AGAIN, NO_ID, false, "no connection to '%.*s' is free"},
};

static const struct meaning not_http = {CURLE_UNSUPPORTED_PROTOCOL, ERR_CORRUPT, NOT_HTTP, true,
                                        "the answer of '%.*s' is not HTTP"};
static const struct meaning too_long = {CURLE_OUT_OF_MEMORY, ERR_CORRUPT, NOT_HTTP, true,
                                        "the headers of the answer of '%.*s' are too long"};
static const struct meaning other = {CURLE_OK, ERR_IO, BROKE, true, "a request to '%.*s' failed"};

static const struct meaning *meaning_of(const struct web_failure *f)
{
    /* libcurl calls an answer without a status line HTTP/0.9, which is not a protocol that we allow. */
    if (f->code == CURLE_UNSUPPORTED_PROTOCOL && f->connected)
        return &not_http;
    if (f->code == CURLE_OUT_OF_MEMORY && f->connected) /* of 100 KiB, which it gives them */
        return &too_long;
    for (size_t i = 0; i < countof(meanings); i++)
        if (meanings[i].code == f->code)
            return &meanings[i];
    return &other;
}

int web_translate(const struct web_failure *f, struct err *err)
{
    const struct meaning *m = meaning_of(f);
    struct str origin = web_origin(f->url);
    bool says = m->wants_detail && f->detail && f->detail[0];
    char system[64] = "";
    enum err_code code = m->means;
    enum cause cause = m->cause;
    /* A socket that we could not even make is our own shortage, not the store's. */
    if (f->code == CURLE_COULDNT_CONNECT && f->sys && err_code_of_errno(f->sys) == ERR_NO_SPACE) {
        code = ERR_NO_SPACE;
        cause = DESCRIPTORS;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    err_set(err, code, m->sentence, STR_FMT(origin));
#pragma GCC diagnostic pop
    char sentence[ERR_TEXT_MAX];
    memcpy(sentence, err->text, sizeof sentence);
    const char *detail = says ? f->detail : m == &other ? curl_easy_strerror(f->code) : "";
    if (f->code == CURLE_COULDNT_CONNECT && f->sys)
        detail = strerror_r(f->sys, system, sizeof system);
    if (detail[0])
        err_set(err, code, "%s: %s", sentence, detail);
    err->sys = f->sys;
    return advise(cause, err);
}
