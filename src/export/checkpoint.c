/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a checkpoint and its marker: whoever finds the marker in the bucket may rely on all of the rest. So it
 * is sent last; and where objects may be overwritten, an old one goes first, before any file of its checkpoint is. */
#include "engine.h"
#include <stdio.h>

static bool wants_marker(const struct run *r)
{
    struct pick_rules rules = plan_rules(r->o.policy);
    return rules.marker.len > 0 && rules.by == PICK_BY_DIRECTORY;
}

static bool withdraws(const struct run *r)
{
    return wants_marker(r) && r->o.policy->conflict == CONFLICT_OVERWRITE;
}

static bool names_marker(const struct run *r, const struct pick_group *g, struct str path)
{
    return path.len == g->folder.len + 1 + strlen(r->o.policy->marker) && str_ends(path, str_of(r->o.policy->marker));
}

static void make_group(struct run *r, size_t g)
{
    const struct pick_group *group = &r->plan.pick.groups[g];
    struct group_left *left = &r->groups[g];
    left->marker = NO_FILE;
    for (size_t i = group->first; i < group->end; i++) {
        const struct pick_file *f = &r->plan.files[i];
        if (wants_marker(r) && names_marker(r, group, f->path))
            left->marker = (ssize_t)i;
        else
            left->files += !f->sent;
    }
    if (withdraws(r) && left->files > 0 && left->marker != NO_FILE)
        r->plan.files[left->marker].sent = false; /* withdrawn, it has to be sent again */
    if (group->chosen && left->files == 0 && wants_marker(r))
        r->ready_markers[r->ready_count++] = g;
}

void checkpoints_make(struct run *r)
{
    size_t n = r->plan.pick.group_count;
    r->groups = xcalloc(n, sizeof *r->groups);
    r->ready_markers = xcalloc(n, sizeof *r->ready_markers);
    for (size_t g = 0; g < n; g++)
        make_group(r, g);
}

void checkpoints_free(struct run *r)
{
    for (size_t g = 0; r->groups && g < r->plan.pick.group_count; g++)
        free(r->groups[g].barred);
    free(r->groups);
    free(r->ready_markers);
}

static struct group_left *group_of(const struct upload *u)
{
    uint32_t g = u->file == NO_FILE ? PICK_NO_GROUP : u->run->plan.files[u->file].group;
    return g == PICK_NO_GROUP ? NULL : &u->run->groups[g];
}

bool checkpoint_is_marker(const struct run *r, size_t file)
{
    uint32_t g = r->plan.files[file].group;
    return g != PICK_NO_GROUP && r->groups[g].marker == (ssize_t)file;
}

void checkpoint_settled(const struct upload *u, enum run_event how)
{
    struct run *r = u->run;
    struct group_left *left = group_of(u);
    if (!left || left->marker == u->file)
        return;
    left->sent |= how == RUN_SENT || how == RUN_THERE;
    left->failed |= how == RUN_FAILED;
    if (--left->files == 0 && wants_marker(r))
        r->ready_markers[r->ready_count++] = (size_t)(left - r->groups);
}

/* ---- its marker -------------------------------------------------------------------------------------------------- */

static struct upload *new_marker(struct run *r, size_t g)
{
    auto_sbuf path;
    sbuf_init(&path, 8192);
    sbuf_add(&path, r->plan.pick.groups[g].folder);
    sbuf_addc(&path, '/');
    sbuf_adds(&path, r->o.policy->marker);
    struct upload *u = run_new_upload(r);
    u->group = g;
    u->marker_path = str_dup(sbuf_str(&path));
    u->path = str_of(u->marker_path);
    return u;
}

static void hold_back(struct run *r, size_t g)
{
    struct err err;
    struct upload *u = run_new_upload(r);
    u->file = r->groups[g].marker;
    u->path = r->plan.files[u->file].path;
    err_set(&err, ERR_IO, "'%.*s' is held back: other files of its checkpoint failed", STR_FMT(u->path));
    err_advise(&err, 4013, "it is sent when they are");
    run_file_failed(u, &err, false);
}

static void start_our_marker(struct run *r, size_t g)
{
    struct upload *u = new_marker(r, g);
    struct stamp nothing = {0};
    if (!r->groups[g].sent && logbook_has(r->logbook, u->path, &nothing)) {
        run_file_left(u);
        return;
    }
    run_make_uid(u->path, &u->hold.stamp, u->uid);
    pthread_mutex_lock(&r->lock);
    r->counts.pending_files++;
    pthread_mutex_unlock(&r->lock);
    upload_start(u);
}

void checkpoint_start_marker(struct run *r, size_t group)
{
    const struct group_left *left = &r->groups[group];
    if (left->failed && left->marker != NO_FILE)
        hold_back(r, group);
    else if (left->failed)
        return;
    else if (left->marker == NO_FILE)
        start_our_marker(r, group);
    else if (!r->plan.files[left->marker].sent)
        run_start_file(r, (size_t)left->marker);
}

/* ---- what is replaced -------------------------------------------------------------------------------------------- */

bool checkpoint_withdraw_next(struct run *r)
{
    while (withdraws(r) && r->next_withdrawal < r->plan.pick.group_count) {
        size_t g = r->next_withdrawal++;
        if (!r->plan.pick.groups[g].chosen || r->groups[g].files == 0)
            continue;
        struct upload *u = new_marker(r, g);
        u->sight = MARKER_UNSEEN;
        r->withdrawals++;
        upload_start(u);
        return true;
    }
    return false;
}

void checkpoint_withdrawn(struct upload *own_u, const struct err *why_not)
{
    struct run *r = own_u->run;
    struct group_left *left = &r->groups[own_u->group];
    r->withdrawals--;
    if (why_not) {
        left->barred = xcalloc(1, sizeof *left->barred);
        err_copy(left->barred, why_not);
        err_wrap(left->barred, "held back: the old marker of its checkpoint cannot be withdrawn");
        err_advise(left->barred, 4014, "let the export read and delete the marker, or export to a new prefix");
    }
    run_file_left(own_u);
}

/* Recorded before it is deleted: killed in between, the next run sends it again, when all the rest is there. */
static void looked(struct upload *u, const struct lane_answer *a)
{
    static const struct stamp no_file = {.inode = UINT64_MAX};
    struct err err;
    if (a->code == -ERR_NOT_FOUND)
        checkpoint_withdrawn(u, NULL);
    else if (a->code < 0 && a->code != -ERR_DENIED)
        checkpoint_withdrawn(u, &a->err);
    else if (logbook_add(u->run->logbook, u->path, &no_file, str_of(u->key), STR_NULL, &err) < 0)
        checkpoint_withdrawn(u, &err);
    else
        u->sight = a->code == 0 ? MARKER_SEEN : MARKER_HIDDEN;
}

/* Who may neither look nor delete is believed that there is none. */
static void deleted(struct upload *u, const struct lane_answer *a)
{
    bool is_gone = a->code == 0 || (a->code == -ERR_DENIED && u->sight == MARKER_HIDDEN);
    checkpoint_withdrawn(u, is_gone ? NULL : &a->err);
}

void checkpoint_answer(struct upload *u, const struct lane_answer *a)
{
    if (u->sight == MARKER_UNSEEN)
        looked(u, a);
    else
        deleted(u, a);
}

const struct err *checkpoint_barred(const struct upload *u)
{
    const struct group_left *left = group_of(u);
    return left ? left->barred : NULL;
}
