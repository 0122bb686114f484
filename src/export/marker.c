/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the marker of a checkpoint. A reader that finds the marker in the bucket relies on all files of the
 * checkpoint. So the marker is sent last. If objects may be replaced, the old marker is deleted before any file of
 * its checkpoint is sent. */
#include "private.h"

static struct upload *new_marker(struct export_run *r, size_t g)
{
    auto_sbuf path;
    checkpoint_marker_path(r, g, &path);
    struct upload *u = run_new_upload(r);
    u->group = g;
    u->file = r->markers.groups[g].marker;
    u->marker_path = str_dup(sbuf_str(&path));
    u->path = str_of(u->marker_path);
    return u;
}

static void hold_back(struct export_run *r, size_t g, const struct err *why)
{
    struct err err;
    struct upload *u = new_marker(r, g);
    err_fail(&err, ERR_IO, CIS_MARKER_WITHHELD, "'%.*s' is held back: %s", STR_FMT(str_sub(u->path, 0, 200)),
             why->text);
    run_file_failed(u, &err);
}

void checkpoint_start_marker(struct export_run *r, size_t group)
{
    const struct group_left *left = &r->markers.groups[group];
    struct err err;
    if (left->failed)
        hold_back(r, group, left->failed);
    else if (checkpoint_look_again(r, group, &err) < 0)
        hold_back(r, group, &err);
    else if (left->marker != NO_FILE)
        run_start_file(r, (size_t)left->marker);
    else {
        struct upload *u = new_marker(r, group);
        run_make_token(u->path, &u->lease.stamp, u->token);
        upload_start(u);
    }
}

bool checkpoint_withdraw_next(struct export_run *r)
{
    while (checkpoint_withdraws(r) && r->markers.next_withdrawal < r->plan.pick.group_count) {
        size_t g = r->markers.next_withdrawal++;
        if (!r->plan.pick.groups[g].chosen || r->markers.groups[g].files == 0)
            continue;
        struct upload *u = new_marker(r, g);
        u->file = NO_FILE;
        u->old_marker = MARKER_UNSEEN;
        r->markers.withdrawals++;
        upload_start(u);
        return true;
    }
    return false;
}

/* NULL: it is gone. */
static void withdrawn(struct upload *own_u, const struct err *why_not)
{
    checkpoint_withdrawn(own_u, why_not);
    run_file_left(own_u);
}

static const struct stamp no_file = {.inode = UINT64_MAX}; /* of a marker that was withdrawn */

/* S3 denies HEAD on a missing object to callers without list permission: then use the logbook. */
static bool may_be_ours(const struct upload *u)
{
    const struct stamp *sent = logbook_stamp(u->run->logbook, u->path);
    return sent && !stamp_eq(sent, &no_file);
}

/* Recorded before the marker is deleted: if this process is killed in between, the next run sends it again after
 * all other files. */
static void head_done(struct upload *u, const struct transfer_answer *a)
{
    bool asks = u->run->o.policy->conflict == CONFLICT_FAIL, is_denied = a->code == -ERR_DENIED;
    struct err err;
    u->run->markers.groups[u->group].is_others = asks && a->code == 0 && !upload_is_own(u, a);
    if (a->code == -ERR_NOT_FOUND || u->run->markers.groups[u->group].is_others ||
        (asks && is_denied && !may_be_ours(u)))
        withdrawn(u, NULL);
    else if (a->code < 0 && (asks || !is_denied))
        withdrawn(u, &a->err);
    else if (logbook_add(u->run->logbook, u->path, &no_file, str_of(u->key), str_of(a->tag), &err) < 0)
        withdrawn(u, &err);
    else
        u->old_marker = MARKER_SEEN;
}

void checkpoint_answer(struct upload *u, const struct transfer_answer *a)
{
    if (u->old_marker == MARKER_UNSEEN)
        head_done(u, a);
    else /* if neither HEAD nor DELETE is allowed, an old marker may exist, and would call the new files complete */
        withdrawn(u, a->code == 0 ? NULL : &a->err);
}
