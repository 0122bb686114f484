/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a pool, or reports why it is absent. All checks come before the first write: a refused directory stays as it
 * was. */
#include "pool/mount.h"
#include "pool/raid.h"
#include "private.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define DISKS_AGAIN_NS (30 * NS_PER_SECOND) /* each attempt runs tools on disks, and failed before */

/* ---- checks before a pool is made -------------------------------------------------------------------------------- */

static bool is_given_up(const struct pool *p, const struct pool_witness *w, const char *uuid)
{
    return str_is_in(str_of(uuid), str_of(p->options.given_up), ',') ||
           (w && str_is_in(str_of(uuid), str_of(w->given_up), ','));
}

/* In a container a bind mount of a directory looks like a disk, and so does every directory of the host. Outside of
 * one, any file system other than the root's counts as a disk. */
static int look_at_mount(const struct pool *p, bool *ret_mounted, char what[ERR_TEXT_MAX], struct err *err)
{
    struct mount m = {0};
    struct stat root, here;
    int r = mount_around(p->options.path, &m, ret_mounted, err);
    if (r < 0)
        return r;
    bool knows_root = !p->options.in_cluster && !p->options.is_ephemeral && stat("/", &root) == 0;
    if (knows_root && fstat(p->dir, &here) == 0)
        *ret_mounted |= here.st_dev != root.st_dev;
    snprintf(what, ERR_TEXT_MAX, "a directory of the %.40s file system on '%.100s'", m.fs_type, m.source);
    mount_done(&m);
    return 0;
}

struct place {
    struct identity_facts facts;
    char content[NAME_MAX + 1];     /* the entry because of which it is not blank */
    char mounted[ERR_TEXT_MAX];     /* the mount found instead of a disk of its own */
    char memory[SPEC_UUID_LEN + 1]; /* the recorded pool of this path; "": not recorded */
};

static int look_at_place(const struct pool *p, const struct pool_witness *w, struct place *ret, struct err *err)
{
    struct identity_facts *f = &ret->facts;
    int r = identity_look_for_content(p->dir, p->options.path, ret->content, err);
    if (r == 0)
        r = look_at_mount(p, &f->is_mounted, ret->mounted, err);
    f->is_blank = !ret->content[0];
    f->require_mount = p->options.require_mount;
    f->is_ephemeral = p->options.is_ephemeral;
    f->is_asked = w != NULL;
    bool by_memory = ret->memory[0], by_witness = w && w->uuid;
    f->has_earlier = by_memory || by_witness;
    f->is_given_up = (!by_memory || is_given_up(p, w, ret->memory)) && (!by_witness || is_given_up(p, w, w->uuid));
    return r;
}

static int refuse_content(const struct pool *p, const struct place *at, struct err *err)
{
    if (strcmp(at->content, "volumes") == 0)
        return err_fail(err, ERR_CORRUPT, CIS_POOL_RECORD_CORRUPT,
                        "'%s' holds volumes, and the pool's identity 'cistern.json' is missing", p->options.path);
    return err_fail(err, ERR_INVALID, CIS_POOL_DIRECTORY_NOT_EMPTY, "'%s' is not a pool and not empty: it has '%.100s'",
                    p->options.path, at->content);
}

static int refuse_earlier(const struct pool *p, const struct pool_witness *w, const struct place *at, struct err *err)
{
    bool by_witness = w && w->uuid && !is_given_up(p, w, w->uuid);
    return err_fail(err, ERR_ABSENT, CIS_POOL_REPLACED, "pool %s belongs in '%s', which is empty: %s names that pool",
                    by_witness ? w->uuid : at->memory, p->options.path,
                    by_witness ? w->who : "the record of this machine");
}

static int refuse(const struct pool *p, const struct pool_witness *w, const struct place *at, enum identity_may why,
                  struct err *err)
{
    switch (why) {
    case IDENTITY_NOT_BLANK:
        return refuse_content(p, at, err);
    case IDENTITY_NOT_MOUNTED:
        return err_fail(err, ERR_ABSENT, CIS_POOL_NOT_MOUNTED, "no disk is mounted at '%s', it is %s", p->options.path,
                        at->mounted);
    case IDENTITY_NOT_ASKED:
        return err_fail(err, ERR_ABSENT, CIS_POOL_IDENTITY_UNKNOWN,
                        "'%s' is empty, and the API server has not yet reported its last pool", p->options.path);
    default:
        return refuse_earlier(p, w, at, err);
    }
}

/* ---- identity ---------------------------------------------------------------------------------------------------- */

static int note_earlier(const struct pool *p, const struct pool_witness *w, const char *uuid, struct pool_identity *i,
                        struct err *err)
{
    return uuid && uuid[0] && strcmp(uuid, i->uuid) != 0
               ? identity_add_earlier(i, str_of(uuid), is_given_up(p, w, uuid), err)
               : 0;
}

static int make_identity(const struct pool *p, const struct pool_witness *w, struct pool_identity *ret, bool *ret_asks,
                         struct err *err)
{
    struct place at = {0};
    int r = p->options.memory ? memory_read(p->options.memory, p->options.path, at.memory, err) : 0;
    if (r == 0)
        r = look_at_place(p, w, &at, err);
    if (r < 0)
        return r;
    enum identity_may may = identity_may_be_made(&at.facts);
    *ret_asks = may == IDENTITY_NOT_ASKED || may == IDENTITY_EARLIER;
    if (may != IDENTITY_MAKE)
        return refuse(p, w, &at, may, err);
    identity_make(ret);
    r = note_earlier(p, w, at.memory, ret, err);
    return r < 0 ? r : note_earlier(p, w, w->uuid, ret, err);
}

/* The pool must be the recorded one, or one that replaced it. */
static int check_identity(const struct pool *p, const struct pool_witness *w, const struct pool_identity *i,
                          struct err *err)
{
    char memory[SPEC_UUID_LEN + 1] = "";
    int r = p->options.memory ? memory_read(p->options.memory, p->options.path, memory, err) : 0;
    if (r < 0 || !memory[0] || strcmp(memory, i->uuid) == 0 || identity_replaces(i, str_of(memory), false) ||
        is_given_up(p, w, memory))
        return r;
    return err_fail(err, ERR_CHANGED, CIS_POOL_ABSENT, "the pool in '%s' is %s, and %s is expected", p->options.path,
                    i->uuid, memory);
}

/* Returns 1 if the directory has no identity: `ret` is then the new one, which the caller writes. */
static int find_identity(const struct pool *p, const struct pool_witness *w, struct pool_identity *ret, bool *ret_asks,
                         struct err *err)
{
    int r = identity_read(p->dir, &p->options, ret, err);
    *ret_asks = false;
    if (r == 0)
        return check_identity(p, w, ret, err);
    if (r != -ERR_NOT_FOUND)
        return r;
    r = make_identity(p, w, ret, ret_asks, err);
    return r < 0 ? r : 1;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_directories(struct pool *p, struct err *err)
{
    /* 0700: pods reach volumes by their mounts; no other user of the node needs access. */
    if (dir_make(p->dir, "volumes", 0700, &p->volumes, err) < 0 ||
        dir_make(p->dir, "making", 0700, &p->making, err) < 0 || dir_make(p->dir, "trash", 0700, &p->trash, err) < 0)
        return -(int)err->code;
    return dir_sync(p->dir, p->path, err);
}

/* A file system mounted over one of them hides volumes, which would count as deleted. */
static int check_directories(const struct pool *p, struct err *err)
{
    const struct {
        const char *name;
        int fd;
    } directories[] = {{"volumes", p->volumes}, {"making", p->making}, {"trash", p->trash}};
    struct stat pool, st;
    if (fstat(p->dir, &pool) != 0)
        return err_sys(err, errno, "cannot read the directory '%s'", p->path);
    for (size_t i = 0; i < countof(directories); i++) {
        if (fstat(directories[i].fd, &st) != 0)
            return err_sys(err, errno, "cannot read the directory '%s/%s'", p->path, directories[i].name);
        if (st.st_dev != pool.st_dev)
            return err_fail(err, ERR_CHANGED, CIS_POOL_ABSENT,
                            "another file system than the pool's is mounted on '%s/%s'", p->path, directories[i].name);
    }
    return 0;
}

static int choose_backend(struct pool *p, struct err *err)
{
    const struct pool_options *o = &p->options;
    struct disk_facts facts = {0};
    int r = 0;
    if (o->facts)
        facts = *o->facts;
    else
        r = disk_probe(p->dir, &facts, err);
    if (r == 0)
        r = disk_choose(&facts, o->backend, &p->backend, p->why_backend, err);
    p->has_loop = facts.loop;
    return r < 0 ? err_wrap(err, "opening the pool '%s'", o->path) : 0;
}

/* Only the lock file is held: no other thread has `p` yet, but another process may make the same directory a pool.
 * So read its identity again. */
static int establish(struct pool *p, const struct pool_witness *w, bool *ret_asks, struct err *err)
{
    if (pool_flock(p->lock_file) != 0)
        return err_sys(err, errno, "cannot lock the pool '%s'", p->path);
    int r = find_identity(p, w, &p->identity, ret_asks, err);
    if (r > 0)
        r = identity_write(p->dir, &p->options, &p->identity, err);
    if (r == 0)
        r = open_directories(p, err);
    if (r == 0)
        r = check_directories(p, err);
    flock(p->lock_file, LOCK_UN);
    return r;
}

/* Disks that are missing now may appear later, and the other pools of the node are served without them. */
static int set_up_disks(struct pool *p, struct err *err)
{
    if (!p->options.disks)
        return 0;
    if (p->disks_failed.code && clock_now_ns() < p->disks_again_ns)
        return err_copy(err, &p->disks_failed);
    const struct local_disks_wanted *w = p->options.disks;
    int r = w->device ? device_ensure(w, p->options.path, err) : raid_ensure(w, p->options.path, err);
    p->disks_failed = r < 0 ? *err : (struct err){0};
    p->disks_again_ns = clock_now_ns() + DISKS_AGAIN_NS;
    return r;
}

static int open_directory(struct pool *p, struct err *err)
{
    int r = dir_open(AT_FDCWD, p->options.path, &p->dir, err);
    return r == -ERR_NOT_FOUND ? err_advise(err, CIS_POOL_DIRECTORY_MISSING) : r;
}

static int open_in(struct pool *p, const struct pool_witness *w, bool *ret_asks, struct err *err)
{
    *ret_asks = false;
    int r = set_up_disks(p, err);
    if (r == 0)
        r = open_directory(p, err);
    if (r < 0)
        return r;
    p->path = realpath(p->options.path, NULL);
    if (!p->path)
        return err_sys(err, errno, "cannot look up the pool '%s'", p->options.path);
    r = find_identity(p, w, &p->identity, ret_asks, err);
    if (r >= 0)
        r = choose_backend(p, err);
    if (r < 0)
        return r;
    r = file_open_state(p->dir, "lock", O_RDWR | O_CREAT, 0600, &p->lock_file, err);
    return r < 0 ? err_wrap(err, "opening the pool '%s'", p->path) : establish(p, w, ret_asks, err);
}

static void close_all(struct pool *p)
{
    int *const fds[] = {&p->dir, &p->volumes, &p->making, &p->trash, &p->lock_file};
    for (size_t i = 0; i < countof(fds); i++)
        fd_close(fds[i]);
    free(p->path);
    p->path = NULL;
}

/* Without a witness, keep the reason of the last attempt that had one. */
static int remain_closed(struct pool *p, const struct pool_witness *w, bool asks, struct err *err)
{
    close_all(p);
    if (asks && !w && p->asks)
        return err_copy(err, &p->why);
    p->asks = asks;
    p->why = *err;
    p->why.code = ERR_ABSENT;
    return -(int)err->code;
}

int pool_open(struct pool *p, const struct pool_witness *w, struct err *err)
{
    bool asks, opens = false;
    int r = 0;
    pthread_mutex_lock(&p->opening);
    if (!p->is_open) {
        r = open_in(p, w, &asks, err);
        if (r < 0)
            r = remain_closed(p, w, asks, err);
        else
            p->is_open = opens = true;
    }
    pthread_mutex_unlock(&p->opening);
    /* Half-made volumes go to the trash; the next pool_empty_trash() reports a failure. */
    if (opens)
        (void)!pool_recover(p, ERR_IGNORED);
    return r;
}

bool pool_is_open(const struct pool *p)
{
    return p->is_open;
}

bool pool_asks(struct pool *p)
{
    auto_lock(&p->opening);
    return !p->is_open && p->asks;
}

/* ---- before opening ---------------------------------------------------------------------------------------------- */

int pool_place_parse(const char *text, struct pool_place *ret, struct err *err)
{
    struct pool_place place = {0};
    struct str rest = str_of(text), word;
    if (!str_split(&rest, ',', &word) || word.ptr[0] != '/' || word.len >= sizeof place.path)
        return err_set(err, ERR_INVALID, "'%.200s' is not DIR[,OPTION...] with an absolute DIR", text);
    snprintf(place.path, sizeof place.path, "%.*s", STR_FMT(word));
    while (str_split(&rest, ',', &word))
        if (str_eq(word, STR("require-mount")))
            place.require_mount = true;
        else if (str_eq(word, STR("ephemeral")))
            place.is_ephemeral = true;
        else
            return err_set(err, ERR_INVALID, "'%.*s' is not an option of a pool: use require-mount or ephemeral",
                           STR_FMT(word));
    *ret = place;
    return 0;
}

int pool_examine(const struct pool_options *o, bool *ret_new, struct err *err)
{
    static const struct pool_witness no_earlier_pool = {0};
    bool unused;
    auto_pool p = NULL;
    int r = pool_new(o, &p, err);
    if (r == 0)
        r = open_directory(p, err);
    if (r == 0)
        r = find_identity(p, &no_earlier_pool, &p->identity, &unused, err);
    if (r < 0)
        return r;
    *ret_new = r > 0;
    return 0;
}

/* ---- new and free ------------------------------------------------------------------------------------------------ */

int pool_new(const struct pool_options *o, struct pool **ret, struct err *err)
{
    if (o->path[0] != '/' || o->reserve_percent > 90 || !o->name[0])
        return err_set(err, ERR_INVALID, "a pool needs an absolute path, a name, and a reserve of at most 90 %%");
    struct pool *p = xcalloc(1, sizeof *p);
    p->options = *o;
    p->options.path = text_copy(str_of(o->path));
    p->options.name = p->name = text_copy(str_of(o->name));
    p->options.node = str_dup(str_of(o->node));
    p->options.memory = text_copy(str_of(o->memory));
    p->options.given_up = text_copy(str_of(o->given_up));
    p->uuid = p->identity.uuid;
    p->dir = p->volumes = p->making = p->trash = p->lock_file = -1;
    pthread_mutex_init(&p->opening, NULL);
    pthread_mutex_init(&p->lock, NULL);
    err_set(&p->why, ERR_ABSENT, "it is not open yet");
    *ret = p;
    return 0;
}

void pool_close(struct pool *own_p)
{
    if (!own_p)
        return;
    close_all(own_p);
    ledger_done(&own_p->ledger);
    pthread_mutex_destroy(&own_p->lock);
    pthread_mutex_destroy(&own_p->opening);
    free((char *)own_p->options.path);
    free((char *)own_p->options.name);
    free((char *)own_p->options.node);
    free((char *)own_p->options.memory);
    free((char *)own_p->options.given_up);
    free(own_p);
}

/* ---- replaced pools ---------------------------------------------------------------------------------------------- */

bool pool_replaces(struct pool *p, const char *uuid, bool given_up)
{
    if (!p->is_open)
        return false;
    auto_lock(&p->opening);
    return identity_replaces(&p->identity, str_of(uuid), given_up);
}

int pool_give_up(struct pool *p, const char *uuid, struct err *err)
{
    if (!spec_uuid_is_valid(str_of(uuid)))
        return err_set(err, ERR_INVALID, "'%.80s' is not a pool UUID: it must have %d hexadecimal digits", uuid,
                       SPEC_UUID_LEN);
    int r = pool_lock(p, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&p->opening);
    struct pool_identity changed = p->identity;
    r = identity_add_earlier(&changed, str_of(uuid), true, err);
    if (r == 0)
        r = identity_write(p->dir, &p->options, &changed, err);
    if (r == 0)
        p->identity = changed;
    pthread_mutex_unlock(&p->opening);
    pool_unlock(p);
    return r;
}

int pool_remember(const struct pool *p, struct err *err)
{
    return p->options.memory ? memory_write(p->options.memory, p->options.path, p->uuid, err) : 0;
}
