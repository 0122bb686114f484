/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a keeper with the functions that cisternd uses, for tests. Never shipped.
 *   keeper_client SOCKET mount ID DATA MOUNTPOINT [read-only|allow-other|exclusive|plain|must|group=N|capacity=N|
 *                                                 context=LABEL]...
 *   keeper_client SOCKET unmount ID TIMEOUT_MS
 *   keeper_client SOCKET status ID           pid=.. restarts=.. state=.. nodes=.. opens=.. passthrough=..
 *   keeper_client SOCKET mirror              holds duplicates until its stdin ends; a line in asks for "VOLUMES
 * CONNECTED" Errors: exit status 1 and the code's name with the sentence on stderr. */
#include "keeper/client.h"
#include "keeper/mirror.h"
#include <stdio.h>

static int failed(const struct err *err)
{
    fprintf(stderr, "%s %s\n", err_code_name(err->code), err->text);
    return 1;
}

static void add_option(struct keeper_mount_request *m, const char *word)
{
    m->read_only |= strcmp(word, "read-only") == 0;
    m->allow_other |= strcmp(word, "allow-other") == 0;
    m->exclusive |= strcmp(word, "exclusive") == 0;
    if (strcmp(word, "plain") == 0)
        m->passthrough = KEEPER_PASSTHROUGH_OFF;
    if (strcmp(word, "must") == 0)
        m->passthrough = KEEPER_PASSTHROUGH_ON;
    if (strncmp(word, "capacity=", 9) == 0)
        m->capacity_bytes = strtoull(word + 9, NULL, 10);
    if (strncmp(word, "context=", 8) == 0)
        m->context = word + 8;
    if (strncmp(word, "group=", 6) == 0) {
        m->has_group = true;
        m->group = (uint32_t)strtoul(word + 6, NULL, 10);
    }
}

static int do_mount(const char *socket, int argc, char **argv)
{
    struct err err;
    struct keeper_mount_request m = {.volume_id = argv[0], .data = argv[1], .mount_point = argv[2]};
    for (int i = 3; i < argc; i++)
        add_option(&m, argv[i]);
    return keeper_mount(socket, &m, &err) < 0 ? failed(&err) : 0;
}

static int do_status(const char *socket, const char *id)
{
    static const char *const states[] = {"serving", "restarting", "leaving"};
    struct err err;
    struct keeper_status s;
    if (keeper_status(socket, id, &s, &err) < 0)
        return failed(&err);
    printf("pid=%d restarts=%u state=%s nodes=%llu opens=%llu passthrough=%d\n", s.pid, s.restarts, states[s.state],
           (unsigned long long)s.nodes, (unsigned long long)s.opens, s.passthrough);
    return 0;
}

static int do_mirror(const char *socket)
{
    struct err err;
    struct mirror *m;
    char line[16];
    if (mirror_start(socket, &m, &err) < 0)
        return failed(&err);
    while (fgets(line, sizeof(line), stdin)) {
        printf("%u %d\n", mirror_volumes(m), mirror_is_connected(m));
        fflush(stdout);
    }
    mirror_stop(m);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err;
    const char *verb = argc > 2 ? argv[2] : "";
    if (strcmp(verb, "mount") == 0 && argc >= 6)
        return do_mount(argv[1], argc - 3, argv + 3);
    if (strcmp(verb, "unmount") == 0 && argc == 5)
        return keeper_unmount(argv[1], argv[3], (uint32_t)strtoul(argv[4], NULL, 10), &err) < 0 ? failed(&err) : 0;
    if (strcmp(verb, "status") == 0 && argc == 4)
        return do_status(argv[1], argv[3]);
    if (strcmp(verb, "mirror") == 0)
        return do_mirror(argv[1]);
    return 2;
}
