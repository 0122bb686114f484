/* SPDX-License-Identifier: Apache-2.0 */
/* Names of many addresses. libcurl would take the first that answers, wait half of the connect timeout for one that
 * does not, and forget what it learnt: here each new connection takes the next address, and one that failed is set
 * aside. libcurl is told the order (CURLOPT_RESOLVE) and tries on from the first; TLS and the Host header see the
 * name. */
#include "util/clock.h"
#include "util/env.h"
#include "util/metric.h"
#include "util/thread.h"
#include "web_error.h"
#include "web_private.h"
#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { ADDRESSES_MAX = 16, NAMES_MAX = 64, FAILURES_MAX = 2, HOST_MAX = 256 };

/* getaddrinfo() tells no time to live; S3's and GCS's names have a minute or less. */
#define FRESH_NS (60 * NS_PER_SECOND)
/* From the far side of the world an answer to the first packet takes a third of it. */
#define SILENT_NS NS_PER_SECOND
#define ASIDE_NS (30 * NS_PER_SECOND)
#define ASIDE_MAX_NS (600 * NS_PER_SECOND)

struct address {
    char text[INET6_ADDRSTRLEN];
    int family;
    unsigned failures; /* connections in a row that broke before an answer */
    uint64_t aside_ns; /* for how long it was set aside last */
    uint64_t aside_until_ns;
};

/* home: shared by the loop and a thread of its own, which ends by itself; whoever lets go of it last frees it. The
 * thread writes `found` before it makes the eventfd readable, and nothing after. */
struct lookup {
    _Atomic unsigned refs;
    struct watch watch; /* of an eventfd: owned */
    struct web_name *name;
    char host[HOST_MAX];
    struct addrinfo *found; /* owned */
};

struct web_name {
    struct web_name *next;
    struct web *web;
    char host[HOST_MAX];
    unsigned port;
    char origin[HOST_MAX + 16]; /* for sentences */
    struct address addresses[ADDRESSES_MAX];
    unsigned count;
    unsigned turn;
    bool is_told;     /* libcurl has a list of these addresses */
    bool is_troubled; /* one of them failed since it last answered */
    uint64_t fresh_until_ns;
    struct lookup *lookup;   /* under way */
    struct web_job *waiting; /* for the first answer */
    unsigned jobs;           /* running */
    unsigned sockets;        /* open */
};

/* ---- looking up -------------------------------------------------------------------------------------------------- */

static void lookup_unref(struct lookup *l)
{
    if (atomic_fetch_sub(&l->refs, 1) > 1)
        return;
    if (l->found)
        freeaddrinfo(l->found);
    close(l->watch.fd);
    free(l);
}

static void *lookup_run(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    uint64_t one = 1;
    l->found = getaddrinfo(l->host, NULL, &hints, &found) == 0 ? found : NULL;
    if (write(l->watch.fd, &one, sizeof one) != sizeof one)
        abort(); /* an eventfd takes its first one */
    lookup_unref(l);
    return NULL;
}

/* False: it is of no family that we know. */
static bool address_text(const struct sockaddr *address, char text[INET6_ADDRSTRLEN])
{
    const void *bytes = address->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                                                      : &((const struct sockaddr_in6 *)address)->sin6_addr;
    return inet_ntop(address->sa_family, bytes, text, INET6_ADDRSTRLEN) != NULL;
}

static struct address *find_address(struct web_name *n, const char *text)
{
    for (unsigned i = 0; text && i < n->count; i++)
        if (strcmp(n->addresses[i].text, text) == 0)
            return &n->addresses[i];
    return NULL;
}

/* The new list, with what is known of those that stand in both. */
static void take_addresses(struct web_name *n, const struct addrinfo *found)
{
    struct web_name old = *n;
    n->count = 0;
    for (const struct addrinfo *a = found; a && n->count < ADDRESSES_MAX; a = a->ai_next) {
        struct address *next = &n->addresses[n->count];
        *next = (struct address){.family = a->ai_family};
        if (!address_text(a->ai_addr, next->text) || find_address(n, next->text))
            continue;
        const struct address *known = find_address(&old, next->text);
        if (known)
            *next = *known;
        n->count++;
    }
}

static void lookup_over(struct web_name *n)
{
    struct lookup *l = n->lookup;
    n->lookup = NULL;
    loop_unwatch(n->web->loop, &l->watch);
    lookup_unref(l);
}

static void lookup_ready(struct watch *w, uint32_t events)
{
    struct lookup *l = container_of(w, struct lookup, watch);
    struct web_name *n = l->name;
    uint64_t count;
    (void)events;
    if (read(w->fd, &count, sizeof count) != sizeof count)
        return;
    uint64_t now = loop_now_ns(n->web->loop);
    if (l->found) { /* else those that are known stay */
        take_addresses(n, l->found);
        n->is_told = false;
    }
    n->fresh_until_ns = now + (l->found ? FRESH_NS : FRESH_NS / 10);
    lookup_over(n);
    struct web_job *next;
    for (struct web_job *j = n->waiting; j; j = next) {
        next = j->next_waiting;
        j->is_waiting = false;
        if (n->count == 0)
            j->start_code = web_translate(&(struct web_failure){.code = CURLE_COULDNT_RESOLVE_HOST, .url = n->origin},
                                          &j->start_err);
        job_todo(j, TODO_START);
    }
    n->waiting = NULL;
}

/* Without a thread or a descriptor libcurl does it, as well as it can. */
static void lookup_start(struct web_name *n)
{
    pthread_t id;
    struct err ignored;
    struct lookup *l = xcalloc(1, sizeof *l);
    atomic_store(&l->refs, 2);
    l->name = n;
    memcpy(l->host, n->host, sizeof l->host);
    l->watch = (struct watch){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = EPOLLIN, .ready = lookup_ready};
    if (l->watch.fd < 0 || loop_watch(n->web->loop, &l->watch, &ignored) < 0) {
        atomic_store(&l->refs, 1);
        lookup_unref(l);
        return;
    }
    n->lookup = l;
    if (thread_start(&id, lookup_run, l) != 0) {
        atomic_store(&l->refs, 1);
        lookup_over(n);
        return;
    }
    pthread_setname_np(id, "name");
    pthread_detach(id);
}

/* ---- which names are ours ---------------------------------------------------------------------------------------- */

/* Through a proxy the addresses are the proxy's business, and NO_PROXY libcurl's. */
bool web_names_wanted(void)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < countof(proxies); i++)
        if (env_get(proxies[i]))
            return false;
    return true;
}

/* This machine by its names is known without a look-up; letters beyond ASCII are to be translated first. */
static bool is_libcurls(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] >= 0x80)
            return true;
    const char *last = memrchr(name.ptr, '.', name.len);
    return str_eq_nocase(last ? str_from(name, (size_t)(last - name.ptr) + 1) : name, STR("localhost"));
}

/* Of "http://host:port"; false: an address, or nothing to look up. */
static bool split_origin(struct str origin, char *host, unsigned *ret_port)
{
    bool tls = str_starts(origin, STR("https://"));
    struct str rest = str_from(origin, tls ? 8 : 7), name;
    struct in_addr address;
    uint64_t port = tls ? 443 : 80;
    struct err ignored;
    if ((!tls && !str_starts(origin, STR("http://"))) || !str_split(&rest, ':', &name) || name.len == 0 ||
        name.len >= HOST_MAX || name.ptr[0] == '[' || memchr(name.ptr, '%', name.len))
        return false;
    if (rest.len && (str_to_u64(rest, &port, &ignored) < 0 || port > 65535))
        return false;
    memcpy(host, name.ptr, name.len);
    host[name.len] = '\0';
    *ret_port = (unsigned)port;
    return !is_libcurls(name) && inet_pton(AF_INET, host, &address) != 1;
}

struct web_name *web_name_of(struct web *w, const char *url)
{
    char host[HOST_MAX];
    unsigned port, count = 0;
    if (!w->names_wanted || !split_origin(web_origin(url), host, &port))
        return NULL;
    for (struct web_name *n = w->names; n; n = n->next, count++)
        if (n->port == port && strcmp(n->host, host) == 0)
            return n;
    if (count == NAMES_MAX)
        return NULL;
    struct web_name *n = xcalloc(1, sizeof *n);
    n->web = w;
    memcpy(n->host, host, sizeof host);
    n->port = port;
    snprintf(n->origin, sizeof n->origin, "%.*s", STR_FMT(web_origin(url)));
    n->turn = (unsigned)clock_random(); /* loops and processes do not all begin with the same one */
    n->next = w->names;
    w->names = n;
    return n;
}

/* ---- how they fare ----------------------------------------------------------------------------------------------- */

static void set_aside(struct web_name *n, struct address *a, const char *cause)
{
    uint64_t now = loop_now_ns(n->web->loop);
    if (!a || a->aside_until_ns > now)
        return;
    a->failures = 0;
    n->is_troubled = true;
    a->aside_ns = min_u64(a->aside_ns ? 2 * a->aside_ns : ASIDE_NS, ASIDE_MAX_NS);
    a->aside_until_ns = now + a->aside_ns;
    metric_add(metric_series(metric_new(METRIC_COUNTER, "cistern_addresses_set_aside_total",
                                        "Addresses of a name that were left alone for a while, by why.", "cause", NULL),
                             cause),
               1);
}

static bool has_another(const struct web_name *n, const char *text)
{
    uint64_t now = loop_now_ns(n->web->loop);
    for (unsigned i = 0; i < n->count; i++)
        if (n->addresses[i].aside_until_ns <= now && strcmp(n->addresses[i].text, text) != 0)
            return true;
    return false;
}

static bool tcp_state(int fd, struct tcp_info *ret)
{
    socklen_t len = sizeof *ret;
    *ret = (struct tcp_info){0};
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, ret, &len) == 0;
}

void web_name_opened(struct web_socket *s, struct web_job *j, const struct sockaddr *address)
{
    if (!j->name || !address_text(address, s->address))
        return;
    s->name = j->name;
    s->name->sockets++;
    s->opener = j;
    s->opened_ns = loop_now_ns(j->web->loop);
}

void web_name_closing(struct web_socket *s)
{
    struct tcp_info info;
    if (!s->name)
        return;
    /* Closed without a round trip: refused, or no way there. */
    if (s->opener && tcp_state(s->watch.fd, &info) && info.tcpi_state == TCP_CLOSE && info.tcpi_rtt == 0)
        set_aside(s->name, find_address(s->name, s->address), "refused");
    s->name->sockets--;
    s->name = NULL;
    s->opener = NULL;
}

/* A first packet that nobody answers: the job goes elsewhere, if there is another address. It has sent nothing yet. */
void web_name_look(struct web_socket *s)
{
    struct tcp_info info;
    if (!s->opener)
        return;
    if (!tcp_state(s->watch.fd, &info) || info.tcpi_state != TCP_SYN_SENT) {
        s->opener = NULL;
        return;
    }
    if (loop_now_ns(s->web->loop) - s->opened_ns < SILENT_NS || !has_another(s->name, s->address))
        return;
    set_aside(s->name, find_address(s->name, s->address), "silent");
    job_todo(s->opener, TODO_ELSEWHERE);
    s->opener = NULL;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

bool web_name_waits(struct web_job *j)
{
    struct web_name *n = j->name;
    if (!n)
        return false;
    if (!n->lookup && n->fresh_until_ns <= loop_now_ns(n->web->loop))
        lookup_start(n);
    if (n->count > 0 || !n->lookup)
        return false;
    j->is_waiting = true;
    j->next_waiting = n->waiting;
    n->waiting = j;
    return true;
}

static void add_to_list(struct web_job *j, const struct address *a, size_t *used)
{
    bool six = a->family == AF_INET6;
    int n = snprintf(j->resolve_text + *used, sizeof j->resolve_text - *used, "%s%s%s%s",
                     j->resolve_text[*used - 1] == ':' ? "" : ",", six ? "[" : "", a->text, six ? "]" : "");
    assert(n > 0 && (size_t)n < sizeof j->resolve_text - *used);
    *used += (size_t)n;
}

/* First those of the family that the system prefers, from the next one on; then those of the other; then those that
 * were set aside, which may be all there is. */
static void list_addresses(struct web_job *j, struct web_name *n)
{
    uint64_t now = loop_now_ns(n->web->loop);
    size_t used = (size_t)snprintf(j->resolve_text, sizeof j->resolve_text, "%s:%u:", n->host, n->port);
    n->turn++;
    for (int round = 0; round < 3; round++) {
        const struct address *its[ADDRESSES_MAX];
        unsigned count = 0;
        for (unsigned i = 0; i < n->count; i++) {
            const struct address *a = &n->addresses[i];
            if ((a->aside_until_ns > now ? 2 : a->family != n->addresses[0].family) == round)
                its[count++] = a;
        }
        for (unsigned i = 0; i < count; i++)
            add_to_list(j, its[(n->turn + i) % count], &used);
    }
    j->resolve = (struct curl_slist){.data = j->resolve_text};
    n->is_told = true;
}

void web_name_choose(struct web_job *j, bool elsewhere)
{
    struct web_name *n = j->name;
    bool ours = n && n->count > 0;
    if (n && !elsewhere)
        n->jobs++;
    /* More jobs than connections: this one will make another. Otherwise libcurl takes one that is kept, and what it
     * was told last stands for the rare case that it cannot. */
    bool wants = ours && (n->jobs > n->sockets || !n->is_told || elsewhere);
    if (wants)
        list_addresses(j, n);
    if (wants || j->has_resolve)
        curl_easy_setopt(j->easy, CURLOPT_RESOLVE, wants ? &j->resolve : NULL);
    if (ours != j->has_order)
        curl_easy_setopt(j->easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, ours ? 0L : 1L);
    j->has_resolve = wants;
    j->has_order = ours;
}

void web_name_left(struct web_job *j)
{
    struct web_job **p = &j->name->waiting;
    while (*p && *p != j)
        p = &(*p)->next_waiting;
    if (*p)
        *p = j->next_waiting;
    j->is_waiting = false;
}

void web_name_over(struct web_job *j, bool answered, bool broke)
{
    struct web_name *n = j->name;
    char *text = NULL;
    long connects = 0;
    n->jobs--;
    if (!broke && !(answered && n->is_troubled))
        return;
    curl_easy_getinfo(j->easy, CURLINFO_PRIMARY_IP, &text);
    curl_easy_getinfo(j->easy, CURLINFO_NUM_CONNECTS, &connects);
    struct address *a = find_address(n, text);
    if (!a)
        return;
    if (answered) {
        a->failures = 0;
        a->aside_ns = 0;
    } else if (connects > 0 && ++a->failures >= FAILURES_MAX) {
        set_aside(n, a, "broken");
    }
    n->is_troubled = false;
    for (unsigned i = 0; i < n->count; i++)
        n->is_troubled |= n->addresses[i].failures > 0 || n->addresses[i].aside_ns > 0;
}

void web_names_free(struct web *w)
{
    for (struct web_name *n; (n = w->names) != NULL;) {
        w->names = n->next;
        if (n->lookup)
            lookup_over(n);
        free(n);
    }
}
