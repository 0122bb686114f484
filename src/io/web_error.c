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

/* %.*s is the origin. With `wants_detail`, libcurl's own words follow after a colon. id 0: no id. */
static const struct web_error_row {
    CURLcode code;
    enum err_code means;
    enum err_id id;
    bool wants_detail;
    const char *sentence;
} rows[] = {
    {CURLE_URL_MALFORMAT, ERR_INVALID, CIS_STORE_UNREACHABLE, true, "'%.*s' is not a valid URL"},
    {CURLE_UNSUPPORTED_PROTOCOL, ERR_INVALID, CIS_STORE_UNREACHABLE, true, "'%.*s' is neither http:// nor https://"},
    {CURLE_COULDNT_RESOLVE_HOST, ERR_IO, CIS_STORE_UNREACHABLE, false, "cannot find the address of '%.*s'"},
    {CURLE_COULDNT_RESOLVE_PROXY, ERR_IO, CIS_STORE_UNREACHABLE, true,
     "cannot find the address of the proxy for '%.*s'"},
    {CURLE_PROXY, ERR_IO, CIS_STORE_UNREACHABLE, true, "the proxy for '%.*s' failed"},
    {CURLE_COULDNT_CONNECT, ERR_IO, CIS_STORE_UNREACHABLE, true, "cannot connect to '%.*s'"},
    {CURLE_OPERATION_TIMEDOUT, ERR_TIMEOUT, CIS_REPLY_TIMEOUT, true, "'%.*s' did not answer in time"},
    {CURLE_SSL_CONNECT_ERROR, ERR_IO, CIS_CERTIFICATE_UNTRUSTED, true, "the TLS handshake with '%.*s' failed"},
    {CURLE_PEER_FAILED_VERIFICATION, ERR_DENIED, CIS_CERTIFICATE_UNTRUSTED, true,
     "the certificate of '%.*s' is not trusted"},
    {CURLE_SSL_ISSUER_ERROR, ERR_DENIED, CIS_CERTIFICATE_UNTRUSTED, true, "the certificate of '%.*s' is not trusted"},
    {CURLE_SSL_CACERT_BADFILE, ERR_INVALID, CIS_CERTIFICATE_UNTRUSTED, true,
     "cannot read the certificates to check '%.*s' against"},
    {CURLE_SSL_CERTPROBLEM, ERR_INVALID, CIS_CERTIFICATE_UNTRUSTED, true,
     "cannot use the client certificate for '%.*s'"},
    {CURLE_SSL_CIPHER, ERR_UNSUPPORTED, CIS_CERTIFICATE_UNTRUSTED, true, "no cipher in common with '%.*s'"},
    {CURLE_SSL_SHUTDOWN_FAILED, ERR_IO, CIS_CONNECTION_LOST, true,
     "the TLS connection to '%.*s' was not closed properly"},
    {CURLE_GOT_NOTHING, ERR_IO, CIS_CONNECTION_LOST, false, "'%.*s' closed the connection without an answer"},
    {CURLE_SEND_ERROR, ERR_IO, CIS_CONNECTION_LOST, true, "the connection to '%.*s' broke while sending"},
    {CURLE_RECV_ERROR, ERR_IO, CIS_CONNECTION_LOST, true, "the connection to '%.*s' broke while receiving"},
    {CURLE_PARTIAL_FILE, ERR_IO, CIS_CONNECTION_LOST, true, "'%.*s' closed the connection in the middle of an answer"},
    {CURLE_SEND_FAIL_REWIND, ERR_IO, CIS_CONNECTION_LOST, false,
     "'%.*s' needs the body again, but it cannot be read twice"},
    {CURLE_ABORTED_BY_CALLBACK, ERR_IO, 0, false, "cannot read the body to send to '%.*s'"},
    {CURLE_READ_ERROR, ERR_IO, 0, false, "cannot read the body to send to '%.*s'"},
    {CURLE_WEIRD_SERVER_REPLY, ERR_CORRUPT, CIS_NOT_HTTP, true, "the answer of '%.*s' is not HTTP"},
    {CURLE_BAD_CONTENT_ENCODING, ERR_CORRUPT, CIS_NOT_HTTP, true, "the answer of '%.*s' is wrongly encoded"},
    {CURLE_FILESIZE_EXCEEDED, ERR_CORRUPT, CIS_NOT_HTTP, true, "the answer of '%.*s' is too large"},
    {CURLE_WRITE_ERROR, ERR_CORRUPT, CIS_NOT_HTTP, true, "the answer of '%.*s' cannot be parsed"},
    {CURLE_OUT_OF_MEMORY, ERR_NO_SPACE, 0, false, "out of memory for a request to '%.*s'"},
    {CURLE_NO_CONNECTION_AVAILABLE, ERR_AGAIN, 0, false, "no connection to '%.*s' is free"},
};

static const struct web_error_row not_http = {CURLE_UNSUPPORTED_PROTOCOL, ERR_CORRUPT, CIS_NOT_HTTP, true,
                                              "the answer of '%.*s' is not HTTP"};
static const struct web_error_row headers_too_long = {CURLE_OUT_OF_MEMORY, ERR_CORRUPT, CIS_NOT_HTTP, true,
                                                      "the headers of the answer of '%.*s' are too long"};
static const struct web_error_row without_tls = {CURLE_SSL_CONNECT_ERROR, ERR_INVALID, CIS_ENDPOINT_WITHOUT_TLS, false,
                                                 "'%.*s' does not use TLS"};
static const struct web_error_row proxy_invalid = {
    CURLE_COULDNT_CONNECT, ERR_INVALID, CIS_PROXY_INVALID, false,
    "the proxy for '%.*s' is not a URL of a supported scheme (http_proxy, https_proxy or all_proxy is set)"};
static const struct web_error_row unresolved = {CURLE_OPERATION_TIMEDOUT, ERR_IO, CIS_STORE_UNREACHABLE, true,
                                                "cannot find the address of '%.*s'"};
static const struct web_error_row other = {CURLE_OK, ERR_IO, CIS_CONNECTION_LOST, true, "a request to '%.*s' failed"};

static bool is_unresolved(const struct web_failure *f)
{
    struct str detail = f->detail ? str_of(f->detail) : STR_NULL;
    return str_starts(detail, STR(WEB_UNRESOLVED)) ||
           (f->code == CURLE_OPERATION_TIMEDOUT && str_starts(detail, STR("Could not resolve host")));
}

static const struct web_error_row *row_of(const struct web_failure *f)
{
    if (is_unresolved(f))
        return &unresolved;
    /* libcurl calls an answer without a status line HTTP/0.9, which is not a protocol that we allow. */
    if (f->code == CURLE_UNSUPPORTED_PROTOCOL && f->connected)
        return &not_http;
    if (f->code == CURLE_OUT_OF_MEMORY && f->connected) /* the receive buffer of 100 KiB, which libcurl allocates */
        return &headers_too_long;
    /* The reply does not begin as TLS does. Any other failure of a handshake may be temporary. */
    if (f->code == CURLE_SSL_CONNECT_ERROR && f->detail && strstr(f->detail, "wrong version number"))
        return &without_tls;
    /* libcurl's words quote the proxy, with its password. */
    if (f->detail && str_starts(str_of(f->detail), STR("Unsupported proxy")))
        return &proxy_invalid;
    for (size_t i = 0; i < countof(rows); i++)
        if (rows[i].code == f->code)
            return &rows[i];
    return &other;
}

/* Omits the subject of the server's certificate: a tenant who chose the server reads the error. */
static const char *detail_of(const struct web_failure *f)
{
    if (is_unresolved(f))
        return "the name service did not answer in time";
    const char *mismatch = strstr(f->detail, "does not match target host name");
    return mismatch ? mismatch : f->detail;
}

int web_translate(const struct web_failure *f, struct err *err)
{
    const struct web_error_row *m = row_of(f);
    struct str origin = web_origin(f->url);
    bool says = m->wants_detail && f->detail && f->detail[0];
    char system[128] = "";
    enum err_code code = m->means;
    enum err_id id = m->id;
    /* No descriptor for a socket: a limit of this process, not an error of the store. */
    if (f->code == CURLE_COULDNT_CONNECT && f->sys && err_code_of_errno(f->sys) == ERR_NO_SPACE) {
        code = ERR_NO_SPACE;
        id = CIS_TOO_MANY_OPEN_FILES;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    err_set(err, code, m->sentence, STR_FMT(origin));
#pragma GCC diagnostic pop
    char sentence[ERR_TEXT_MAX];
    memcpy(sentence, err->text, sizeof sentence);
    const char *detail = says ? detail_of(f) : m == &other ? curl_easy_strerror(f->code) : "";
    if (f->code == CURLE_COULDNT_CONNECT && f->sys)
        detail = strerror_r(f->sys, system, sizeof system);
    if ((f->code == CURLE_COULDNT_CONNECT || f->code == CURLE_OPERATION_TIMEDOUT) && f->has_proxy) {
        auto_mem char *cause = str_dup(str_of(detail));
        snprintf(system, sizeof system, "%.70s (http_proxy, https_proxy or all_proxy is set)", cause);
        detail = system;
    }
    if (detail[0])
        err_set(err, code, "%s: %s", sentence, detail);
    err->sys = f->sys;
    return id ? err_advise_by_id(err, id) : -(int)code;
}
