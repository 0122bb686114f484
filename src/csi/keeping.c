/* SPDX-License-Identifier: Apache-2.0 */
#include "keeping.h"
#include "child.h"
#include "fuse/keeper.h"
#include "util/clock.h"
#include "util/log.h"
#include <stdio.h>

#define START_NS (10 * NS_PER_SECOND)
#define LOOK_NS (20 * NS_PER_MS)

enum { UNMOUNT_MS = 5000 };

static void ignore(const struct keeper_status *s, void *user)
{
    (void)s, (void)user;
}

static bool answers(struct driver *d)
{
    struct err err;
    return keeper_list(d->keeper_socket, ignore, NULL, &err) == 0;
}

static int start_keeper(struct driver *d, struct err *err)
{
    auto_sbuf program;
    pid_t pid;
    sbuf_init(&program, 4096);
    sbuf_addf(&program, "%s/cistern-keeper", d->programs);
    char *const argv[] = {program.ptr, (char *)"--socket", d->keeper_socket, NULL};
    int r = child_spawn(argv, NULL, &pid, err);
    if (r < 0)
        return r;
    log_event(LOG_INFO, "keeper started", "pid", log_u64((uint64_t)pid), "socket", d->keeper_socket, NULL);
    for (uint64_t end_ns = clock_now_ns() + START_NS; clock_now_ns() < end_ns; usleep(LOOK_NS / 1000))
        if (answers(d))
            return 0;
    return err_set(err, ERR_AGAIN, "the keeper was started and does not answer at '%s'", d->keeper_socket);
}

/* One at a time: of two keepers on one socket the second would take the first one's place. */
static int ensure_keeper(struct driver *d, struct err *err)
{
    auto_claim claim = {0};
    if (answers(d))
        return 0;
    int r = claim_take(&d->claims, "keeper", &claim, err);
    if (r < 0)
        return err_set(err, ERR_AGAIN, "the keeper is being started");
    return answers(d) ? 0 : start_keeper(d, err);
}

int keeping_mount(struct driver *d, const struct volume *v, const char *data, const struct record *wish,
                  struct err *err)
{
    struct keeper_mount m = {.volume_id = v->spec->id,
                             .data = data,
                             .mount_point = wish->staged,
                             .read_only = wish->read_only,
                             .allow_other = true,
                             /* While data/ is still being filled nobody looks into the mount: it is published after. */
                             .exclusive = v->spec->params.hydration != HYDRATION_LAZY,
                             .has_group = wish->has_group,
                             .group = wish->group};
    int r = ensure_keeper(d, err);
    return r < 0 ? r : keeper_mount(d->keeper_socket, &m, err);
}

int keeping_unmount(struct driver *d, const char *id, const char *path, struct err *err)
{
    int r = keeper_unmount(d->keeper_socket, id, UNMOUNT_MS, err);
    if (r != -ERR_AGAIN)
        return r;
    log_err(LOG_WARN, "no keeper to unmount a volume", err, "volume", id, "path", path, NULL);
    return 0;
}
