/* SPDX-License-Identifier: Apache-2.0 */
/* A bucket of synthetic objects behind S3 and GCS, for tests and benchmarks. Prints "port N" when it listens. */
#include "bucket_connection.h"
#include "util/clock.h"
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

static const char usage[] =
    "bucket_server [flags]\n"
    "  --objects PREFIX:COUNT:SIZE[-SIZE][:flat|deep|skewed]   synthetic objects; may be repeated\n"
    "  --bucket NAME        (bench)\n"
    "  --address IPV4       where it listens (127.0.0.1)\n"
    "  --port N             there (0: any; it is printed as 'port N')\n"
    "  --threads N          (1)\n"
    "  --checksums LIST     crc32c,crc32,crc64nvme,md5 or none: checksums of an object (crc32c,crc64nvme)\n"
    "  --latency TIME       to the first byte of each answer: 20ms\n"
    "  --connections N      as many at once; others are reset, as by a proxy that is full\n"
    "  --tls FILE           use TLS; its certificate is written to FILE\n"
    "  --fault RULE         [op=get|head|list|put|post|delete|any,][key=GLOB,][nth=N,][after=N,][every=N,][times=N,]\n"
    "                       [percent=N|permille=N,]do=ACTION[:N[:TEXT]]; may be repeated; POST /_fault adds, GET shows "
    "how often\n"
    "                       each fired, DELETE clears and brings back what was changed or removed; no rule meets a\n"
    "                       request that has a header x-without-faults\n"
    "  --forget             keep no uploaded bytes, only their size and checksums\n"
    "  --heedless[=put|=complete]   ignore the conditions of writes, or of one kind of them (S3), as some servers do\n"
    "  --composite          tell a composite CRC32C of objects of parts (S3), and no checksum of the whole\n"
    "  --odd-roots          another name for the roots of XML answers to writes (S3)\n"
    "  --old-fashioned      answer 501 to any checksum but Content-MD5 (S3), as some servers do\n"
    "  --unconditional      answer 501 to a condition on a write (S3), as some servers do\n"
    "  --die-with-parent    end when the starting process does\n\n"
    "GET /_stats counts requests (DELETE also sets them to 0); GET /_objects lists uploads,\n"
    "GET /_order the keys of GETs as they came.\n"
    "Actions: reset[:N] stall[:N] truncate[:N] (after N bytes of the body; without N before the head), "
    "long:N[:silent],\n"
    "  wrong-length:N, no-length, wrong-range, other-range, no-range, status:CODE[:RETRY-AFTER], change, remove, "
    "corrupt[:AT],\n"
    "  checksum, no-checksum, etag (another one), redirect:CODE:URL, page-loop, page-repeat, page-skip, "
    "garbage[:N],\n  garbage-body[:N], body:CODE:FILE,\n"
    "  lost (the answer of a request that was done), answer:CODE:FILE (to a request that was done), "
    "slow:BYTES_A_SECOND,\n  latency:MS, error:CODE:S3-CODE,\n"
    "  hold:N:OP (until N requests of operation OP came, this one among them), hold:N:rule (until rule N has fired,\n"
    "  the first is 1),\n"
    "  limit:N (503 to what is more than N a second; a rule for a prefix limits that prefix), late:MS (503 after MS)\n";

enum { THREADS_MAX = 16 };

struct command {
    struct server_options options;
    struct in_addr address;
    uint64_t port, threads;
    const char *tls_file;
};

static int checksums_parse(struct str list, struct err *err)
{
    struct str name;
    told = (struct digests_told){0};
    while (str_split(&list, ',', &name)) {
        bool *which = str_eq(name, STR("crc32c"))      ? &told.crc32c
                      : str_eq(name, STR("crc32"))     ? &told.crc32
                      : str_eq(name, STR("crc64nvme")) ? &told.crc64
                      : str_eq(name, STR("md5"))       ? &told.md5
                                                       : NULL;
        if (!which && !str_eq(name, STR("none")))
            return err_set(err, ERR_INVALID, "'%.*s' is not a checksum", STR_FMT(name));
        if (which)
            *which = true;
    }
    return 0;
}

static int flag_parse(int flag, const char *value, struct command *c, struct err *err)
{
    struct str v = str_of(value);
    switch (flag) {
    case 'o':
        return objects_add(v, err);
    case 'b':
        bucket_name = value;
        return 0;
    case 'a':
        return inet_aton(value, &c->address) ? 0 : err_set(err, ERR_INVALID, "'%s' is not an IPv4 address", value);
    case 'p':
        return str_to_u64(v, &c->port, err);
    case 't':
        return str_to_u64(v, &c->threads, err);
    case 'c':
        return checksums_parse(v, err);
    case 'l':
        return str_to_duration(v, &c->options.latency_ns, err);
    case 'n':
        return str_to_u64(v, &c->options.connections_max, err);
    case 's':
        c->tls_file = value;
        return 0;
    case 'f':
        return fault_add(v, err);
    case 'k':
        keep_content = false;
        return 0;
    case 'h':
        heedless_put = !value || strcmp(value, "complete") != 0;
        heedless_complete = !value || strcmp(value, "put") != 0;
        return 0;
    case 'i':
        composite = true;
        return 0;
    case 'r':
        odd_roots = true;
        return 0;
    case 'm':
        old_fashioned = true;
        return 0;
    case 'u':
        unconditional = true;
        return 0;
    case 'd':
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        return 0;
    default:
        return err_set(err, ERR_INVALID, "%s", usage);
    }
}

static int command_parse(int argc, char **argv, struct command *c, struct err *err)
{
    static const struct option flags[] = {
        {"objects", required_argument, NULL, 'o'},     {"bucket", required_argument, NULL, 'b'},
        {"address", required_argument, NULL, 'a'},     {"port", required_argument, NULL, 'p'},
        {"threads", required_argument, NULL, 't'},     {"checksums", required_argument, NULL, 'c'},
        {"latency", required_argument, NULL, 'l'},     {"tls", required_argument, NULL, 's'},
        {"fault", required_argument, NULL, 'f'},       {"forget", no_argument, NULL, 'k'},
        {"die-with-parent", no_argument, NULL, 'd'},   {"heedless", optional_argument, NULL, 'h'},
        {"old-fashioned", no_argument, NULL, 'm'},     {"unconditional", no_argument, NULL, 'u'},
        {"connections", required_argument, NULL, 'n'}, {"composite", no_argument, NULL, 'i'},
        {"odd-roots", no_argument, NULL, 'r'},         {NULL, 0, NULL, 0}};
    told = (struct digests_told){.crc32c = true, .crc64 = true};
    for (int flag; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1;) {
        int r = flag_parse(flag, optarg, c, err);
        if (r < 0)
            return r;
    }
    if (optind < argc || c->threads < 1 || c->threads > THREADS_MAX || c->port > 65535)
        return err_set(err, ERR_INVALID, "%s", usage);
    return 0;
}

static int listen_on(struct in_addr address, uint64_t port, int *ret_fd, struct err *err)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = address, .sin_port = htons((uint16_t)port)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 4096) < 0)
        return err_sys(err, errno, "cannot listen on %s:%llu", inet_ntoa(address), (unsigned long long)port);
    getsockname(fd, (struct sockaddr *)&a, &len);
    printf("port %d\n", ntohs(a.sin_port));
    fflush(stdout);
    *ret_fd = fd;
    return 0;
}

static int serve(struct command *c, struct err *err)
{
    static struct server_thread threads[THREADS_MAX];
    int listener = -1;
    pthread_t id;
    int r = objects_begin(err);
    if (r == 0 && c->tls_file)
        r = tls_begin(c->tls_file, &c->options.tls, err);
    if (r == 0)
        r = listen_on(c->address, c->port, &listener, err);
    if (r < 0)
        return r;
    for (uint64_t i = 0; i < c->threads; i++) {
        threads[i] = (struct server_thread){.epoll_fd = epoll_create1(EPOLL_CLOEXEC), .options = &c->options};
        if (pthread_create(&id, NULL, server_thread_run, &threads[i]) != 0)
            return err_set(err, ERR_NO_SPACE, "cannot start a thread");
    }
    for (uint64_t turn = 0;; turn++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            connection_open(&threads[turn % c->threads], fd);
        else if (errno == EMFILE || errno == ENFILE)
            usleep(1000);
    }
}

int main(int argc, char **argv)
{
    struct command c = {.threads = 1, .address.s_addr = htonl(INADDR_LOOPBACK)};
    struct err err;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    if (command_parse(argc, argv, &c, &err) < 0 || serve(&c, &err) < 0)
        fprintf(stderr, "bucket_server: %s\n", err.text);
    return 1;
}
