/* SPDX-License-Identifier: Apache-2.0 */
/* Spreads connections over the addresses of a host. libcurl would use the first address that answers. It would wait
 * half of the connect timeout for a dead one, again for each connection. Here each new connection uses the next
 * address, and a failed address is avoided for a while. libcurl gets the order by CURLOPT_RESOLVE; TLS and the Host
 * header have the name. */
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
#include <resolv.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { ADDRESSES_MAX = 16, NAMES_MAX = 64, FAILURES_MAX = 2, SLOW_TIMES = 4, HOST_MAX = 256 };

/* getaddrinfo() returns no time to live; the names of S3 and GCS have a minute or less. */
#define FRESH_NS (60 * NS_PER_SECOND)
/* An address that sent no byte for this long. A reply from the other side of the world takes a third of it. */
#define SILENT_NS NS_PER_SECOND
#define MUTE_NS (5 * NS_PER_SECOND)
#define ASIDE_NS (30 * NS_PER_SECOND)
#define ASIDE_MAX_NS (600 * NS_PER_SECOND)

struct address {
    char text[INET6_ADDRSTRLEN];
    int family;
    unsigned failures; /* consecutive connections that broke before a reply */
    unsigned asides;   /* times that it was avoided since the last success */
    uint64_t aside_until_ns;
    uint64_t answered_ns; /* when a reply was last seen on a new connection */
};

/* home: shared by the loop and a thread of its own, which ends by itself; the last reference frees it. The thread
 * writes `found` before it makes the eventfd readable, and nothing after. */
struct lookup {
    _Atomic unsigned refs;
    struct watch watch; /* of an eventfd: owned */
    struct web_host *name;
    char host[HOST_MAX];
    struct addrinfo *found; /* owned */
};

struct web_host {
    struct list_node node;
    struct web *web;
    char host[HOST_MAX];
    unsigned port;
    char origin[HOST_MAX + 16]; /* for sentences */
    struct address addresses[ADDRESSES_MAX];
    unsigned count;
    unsigned turn;
    bool is_told;    /* libcurl has a list of these addresses */
    bool has_failed; /* an address failed, and has not answered since */
    uint64_t fresh_until_ns;
    struct lookup *lookup; /* under way */
    struct list waiting;   /* jobs, for the first answer */
    unsigned jobs;         /* running */
    unsigned sockets;      /* open */
    uint64_t answered_ns;  /* any address of it did */
    uint64_t slowest_ns;   /* first byte so far */
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

/* In a pod, a name with fewer than five dots is first looked up below the domains of the cluster: "s3.example.dev" as a
 * pod of Service "example" in namespace "dev". Its owner must not pass for the store. With two dots, only names in
 * "svc" are such names. The options are this thread's. */
static void prefer_whole_names(const char *host)
{
    enum { DOTS_OF_A_WHOLE_NAME = 2 };
    if (!str_ends(str_of(host), STR(".svc")) && res_init() == 0 && _res.ndots > DOTS_OF_A_WHOLE_NAME)
        _res.ndots = DOTS_OF_A_WHOLE_NAME;
}

static void *lookup_run(void *arg)
{
    struct lookup *l = arg;
    prefer_whole_names(l->host);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    l->found = getaddrinfo(l->host, NULL, &hints, &found) == 0 ? found : NULL;
    if (eventfd_write(l->watch.fd, 1) != 0)
        abort(); /* the first write to an eventfd cannot fail */
    lookup_unref(l);
    return NULL;
}

/* False: an unknown family. */
static bool address_text(const struct sockaddr *address, char text[INET6_ADDRSTRLEN])
{
    const void *bytes = address->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                                                      : &((const struct sockaddr_in6 *)address)->sin6_addr;
    return inet_ntop(address->sa_family, bytes, text, INET6_ADDRSTRLEN) != NULL;
}

static struct address *find_address(struct web_host *n, const char *text)
{
    for (unsigned i = 0; text && i < n->count; i++)
        if (strcmp(n->addresses[i].text, text) == 0)
            return &n->addresses[i];
    return NULL;
}

/* The new list. Addresses that are in the old list keep their state. */
static void take_addresses(struct web_host *n, const struct addrinfo *found)
{
    struct web_host old = *n;
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

static void lookup_over(struct web_host *n)
{
    struct lookup *l = n->lookup;
    n->lookup = NULL;
    loop_unwatch(n->web->loop, &l->watch);
    lookup_unref(l);
}

static void lookup_ready(struct watch *w, uint32_t)
{
    struct lookup *l = container_of(w, struct lookup, watch);
    struct web_host *n = l->name;
    uint64_t count;
    if (read(w->fd, &count, sizeof count) != sizeof count)
        return;
    uint64_t now = loop_now_ns(n->web->loop);
    if (l->found) { /* else the old ones stay */
        take_addresses(n, l->found);
        n->is_told = false;
    }
    n->fresh_until_ns = now + (l->found ? FRESH_NS : FRESH_NS / 10);
    lookup_over(n);
    struct web_job *j;
    while ((j = list_pop(&n->waiting, struct web_job, address.waiting_node)) != NULL) {
        j->address.is_waiting = false;
        if (n->count == 0)
            j->start.code = web_translate(&(struct web_failure){.code = CURLE_COULDNT_RESOLVE_HOST, .url = n->origin},
                                          &j->start.err);
        web_job_schedule(j, STEP_START);
    }
}

/* Without a thread or a descriptor, libcurl looks the name up. */
static void lookup_start(struct web_host *n)
{
    pthread_t id;
    struct lookup *l = xcalloc(1, sizeof *l);
    atomic_store(&l->refs, 2);
    l->name = n;
    memcpy(l->host, n->host, sizeof l->host);
    l->watch = (struct watch){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = EPOLLIN, .ready = lookup_ready};
    if (l->watch.fd < 0 || loop_watch(n->web->loop, &l->watch, ERR_IGNORED) < 0) {
        atomic_store(&l->refs, 1);
        lookup_unref(l);
        return;
    }
    n->lookup = l;
    if (thread_start_named(&id, "name", lookup_run, l, ERR_IGNORED) < 0) {
        atomic_store(&l->refs, 1);
        lookup_over(n);
        return;
    }
    pthread_detach(id);
}

/* ---- which names are looked up here ------------------------------------------------------------------------------ */

/* A proxy looks up the addresses itself, and libcurl reads NO_PROXY. */
bool web_hosts_wanted(void)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < countof(proxies); i++)
        if (env_get(proxies[i]))
            return false;
    return true;
}

/* localhost needs no look-up, and only libcurl translates letters beyond ASCII. */
static bool is_libcurls(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] >= 0x80)
            return true;
    const char *last = memrchr(name.ptr, '.', name.len);
    return str_eq_nocase(last ? str_from(name, (size_t)(last - name.ptr) + 1) : name, STR("localhost"));
}

/* Gets the host of "http://host:port"; false for an address, and for an empty host. */
static bool split_origin(struct str origin, char *host, unsigned *ret_port)
{
    bool tls = str_starts(origin, STR("https://"));
    struct str rest = str_from(origin, tls ? 8 : 7), name;
    struct in_addr address;
    uint64_t port = tls ? 443 : 80;
    if ((!tls && !str_starts(origin, STR("http://"))) || !str_split(&rest, ':', &name) || name.len == 0 ||
        name.len >= HOST_MAX || name.ptr[0] == '[' || memchr(name.ptr, '%', name.len))
        return false;
    if (rest.len && (str_to_u64(rest, &port, ERR_IGNORED) < 0 || port > 65535))
        return false;
    memcpy(host, name.ptr, name.len);
    host[name.len] = '\0';
    *ret_port = (unsigned)port;
    return !is_libcurls(name) && inet_pton(AF_INET, host, &address) != 1;
}

struct web_host *web_host_of(struct web *w, const char *url)
{
    char host[HOST_MAX];
    unsigned port;
    struct web_host *n;
    if (!w->hosts_wanted || !split_origin(web_origin(url), host, &port))
        return NULL;
    list_foreach (&w->names, n, node)
        if (n->port == port && strcmp(n->host, host) == 0)
            return n;
    if (w->name_count == NAMES_MAX)
        return NULL;
    w->name_count++;
    n = xcalloc(1, sizeof *n);
    n->web = w;
    memcpy(n->host, host, sizeof host);
    n->port = port;
    snprintf(n->origin, sizeof n->origin, "%.*s", STR_FMT(web_origin(url)));
    n->turn = (unsigned)clock_random(); /* loops and processes begin with different ones */
    list_add_first(&w->names, &n->node);
    return n;
}

/* ---- failed addresses -------------------------------------------------------------------------------------------- */

static void set_aside(struct web_host *n, struct address *a, const char *cause)
{
    uint64_t now = loop_now_ns(n->web->loop);
    if (!a || a->aside_until_ns > now)
        return;
    a->failures = 0;
    n->has_failed = true;
    a->aside_until_ns = now + clock_doubled_ns(a->asides++, ASIDE_NS, ASIDE_MAX_NS);
    metric_add(metric_series(metric_new(METRIC_COUNTER, "cistern_addresses_set_aside_total",
                                        "Addresses of a store that were not used for a while.", "cause", NULL),
                             cause),
               1);
}

static bool has_another(const struct web_host *n, const char *text)
{
    uint64_t now = loop_now_ns(n->web->loop);
    for (unsigned i = 0; i < n->count; i++)
        if (n->addresses[i].aside_until_ns <= now && strcmp(n->addresses[i].text, text) != 0)
            return true;
    return false;
}

void web_host_socket_opened(struct web_socket *s, struct web_job *j, const struct sockaddr *address)
{
    if (!j->address.host || !address_text(address, s->address))
        return;
    s->name = j->address.host;
    s->name->sockets++;
    s->is_mute = false;
}

void web_host_socket_closing(struct web_socket *s)
{
    struct tcp_info info;
    /* Closed without a round trip: refused, or unreachable. */
    if (s->name && s->opener && web_socket_state(s->watch.fd, &info) && info.tcpi_state == TCP_CLOSE &&
        info.tcpi_rtt == 0)
        set_aside(s->name, find_address(s->name, s->address), "refused");
}

void web_host_socket_closed(struct web_socket *s)
{
    if (s->name)
        s->name->sockets--;
    s->name = NULL;
}

static void move_job(struct web_socket *s)
{
    web_job_schedule(s->opener, STEP_NEXT_ADDRESS);
    s->opener = NULL;
}

/* The server accepts connections and does not answer. A single request may be slow work, so it may take longer
 * than two of them while other addresses answer. Then the address is avoided, and its waiting reads use another
 * one. */
static void check_answer(struct web_socket *s, uint64_t now)
{
    const struct web_job *j = s->opener;
    struct web_host *n = s->name;
    struct address *a = find_address(n, s->address);
    uint64_t waited = now - s->opened_ns;
    if (!a || j->state != WEB_JOB_RUNNING || j->progress.started_ns > s->opened_ns || j->progress.first_byte_ns) {
        s->opener = NULL; /* it may serve another request by now */
        if (a)
            a->answered_ns = now;
        return;
    }
    uint64_t patience = max_u64(n->answered_ns > s->opened_ns ? SILENT_NS : MUTE_NS, SLOW_TIMES * n->slowest_ns);
    if (!j->is_read || waited < patience || a->answered_ns > s->opened_ns || !has_another(n, s->address))
        return;
    a->failures += !s->is_mute;
    s->is_mute = true;
    if (a->failures >= FAILURES_MAX || waited >= MUTE_NS)
        set_aside(n, a, "mute");
    if (a->aside_until_ns > now)
        move_job(s);
}

/* No reply to the first packet, or to the first request: the job uses another address, if there is one. */
void web_host_check_connect(struct web_socket *s)
{
    struct tcp_info info;
    uint64_t now = loop_now_ns(s->web->loop);
    if (!s->opener || !s->name)
        return;
    if (!web_socket_state(s->watch.fd, &info) || info.tcpi_state != TCP_SYN_SENT) {
        check_answer(s, now);
        return;
    }
    if (now - s->opened_ns < SILENT_NS || !has_another(s->name, s->address))
        return;
    set_aside(s->name, find_address(s->name, s->address), "silent");
    move_job(s);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

bool web_host_must_wait(struct web_job *j)
{
    struct web_host *n = j->address.host;
    if (!n)
        return false;
    if (!n->lookup && n->fresh_until_ns <= loop_now_ns(n->web->loop))
        lookup_start(n);
    if (n->count > 0 || !n->lookup)
        return false;
    j->address.is_waiting = true;
    list_add(&n->waiting, &j->address.waiting_node);
    return true;
}

static void add_to_list(struct web_job_address *to, const struct address *a, size_t *used)
{
    bool six = a->family == AF_INET6;
    size_t room = sizeof to->resolve_text - *used;
    int n = snprintf(to->resolve_text + *used, room, "%s%s%s%s", to->resolve_text[*used - 1] == ':' ? "" : ",",
                     six ? "[" : "", a->text, six ? "]" : "");
    assert(n > 0 && (size_t)n < room);
    *used += (size_t)n;
}

/* First the family that the system prefers, from the next address on; then the other family. The avoided addresses are
 * last, and may be the only ones. */
static void list_addresses(struct web_job_address *to)
{
    struct web_host *n = to->host;
    uint64_t now = loop_now_ns(n->web->loop);
    size_t used = (size_t)snprintf(to->resolve_text, sizeof to->resolve_text, "%s:%u:", n->host, n->port);
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
            add_to_list(to, its[(n->turn + i) % count], &used);
    }
    to->resolve = (struct curl_slist){.data = to->resolve_text};
    n->is_told = true;
}

void web_host_choose_address(struct web_job *j, bool elsewhere)
{
    struct web_host *n = j->address.host;
    bool ours = n && n->count > 0;
    j->address.chosen_ns = loop_now_ns(j->web->loop);
    if (n && !elsewhere)
        n->jobs++;
    /* More jobs than connections: this job will open another. Otherwise libcurl uses a kept one. Should that fail, it
     * still has its last list. */
    bool wants = ours && (n->jobs > n->sockets || !n->is_told || elsewhere);
    if (wants)
        list_addresses(&j->address);
    if (wants || j->address.has_resolve)
        curl_easy_setopt(j->easy, CURLOPT_RESOLVE, wants ? &j->address.resolve : NULL);
    if (ours != j->address.has_order)
        curl_easy_setopt(j->easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, ours ? 0L : 1L);
    j->address.has_resolve = wants;
    j->address.has_order = ours;
}

void web_host_stop_waiting(struct web_job *j)
{
    list_remove(&j->address.host->waiting, &j->address.waiting_node);
    j->address.is_waiting = false;
}

bool web_host_is_known(const struct web_job *j)
{
    char *address = NULL; /* if a second look-up, by libcurl, found one */
    curl_easy_getinfo(j->easy, CURLINFO_PRIMARY_IP, &address);
    return !j->address.host || j->address.host->count > 0 || (address && address[0]);
}

void web_host_job_ended(struct web_job *j, bool answered, bool broke)
{
    struct web_host *n = j->address.host;
    char *text = NULL;
    long connects = 0;
    n->jobs--;
    if (answered) {
        n->answered_ns = loop_now_ns(n->web->loop);
        /* Without the wait for an address that did not answer: it would prolong the next wait for that address. */
        uint64_t first_byte_ns = j->progress.started_ns + j->progress.first_byte_ns;
        if (first_byte_ns > j->address.chosen_ns)
            n->slowest_ns = max_u64(n->slowest_ns, first_byte_ns - j->address.chosen_ns);
    }
    if (!broke && !(answered && n->has_failed))
        return;
    curl_easy_getinfo(j->easy, CURLINFO_PRIMARY_IP, &text);
    curl_easy_getinfo(j->easy, CURLINFO_NUM_CONNECTS, &connects);
    struct address *a = find_address(n, text);
    if (!a)
        return;
    if (answered) {
        a->failures = 0;
        a->asides = 0;
    } else if (connects > 0 && ++a->failures >= FAILURES_MAX) {
        set_aside(n, a, "broken");
    }
    n->has_failed = false;
    for (unsigned i = 0; i < n->count; i++)
        n->has_failed |= n->addresses[i].failures > 0 || n->addresses[i].asides > 0;
}

void web_hosts_free(struct web *w)
{
    struct web_host *n;
    while ((n = list_pop(&w->names, struct web_host, node)) != NULL) {
        if (n->lookup)
            lookup_over(n);
        free(n);
    }
}
