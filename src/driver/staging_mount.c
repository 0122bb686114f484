/* SPDX-License-Identifier: Apache-2.0 */
/* A dead FUSE mount looks alive in mountinfo, and often to stat(2), which the kernel answers from its caches. statfs(2)
 * is never cached: it asks the mount process, and reports the type of the file system. */
#include "staging_mount.h"
#include "pool/mount.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/thread.h"
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define ANSWER_NS (5 * NS_PER_SECOND) /* a dead mount process is restarted within a second */

/* ---- asking ------------------------------------------------------------------------------------------------------ */

enum { STATX_CACHED = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT };

/* A thread in statfs(2) on a mount that does not answer cannot be ended: it is left behind. So such a mount gets no
 * further query, and their number is limited. */
enum { QUERIES_MAX = 16 };

struct statfs_query {
    struct list_node node;        /* of `queries` */
    dev_t device;                 /* of the mount */
    int fd;                       /* owned */
    bool is_answered, is_dropped; /* the fields below too: under `lock` */
    int error;                    /* errno, or 0 */
    uint64_t type;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all queries */
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static struct list queries;
static int query_count;

static void statfs_query_free(struct statfs_query *own_q)
{
    query_count--;
    list_remove(&queries, &own_q->node);
    close(own_q->fd);
    free(own_q);
}

static void *run_query(void *arg)
{
    struct statfs_query *q = arg;
    struct statfs fs = {0};
    int error = fstatfs(q->fd, &fs) == 0 ? 0 : errno;
    pthread_mutex_lock(&lock);
    q->error = error;
    q->type = (uint64_t)fs.f_type;
    q->is_answered = true;
    if (q->is_dropped)
        statfs_query_free(q);
    pthread_cond_broadcast(&answered);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Under `lock`. Has this mount left an earlier query unanswered? */
static bool is_unanswered(dev_t device)
{
    const struct statfs_query *q;
    list_foreach (&queries, q, node)
        if (q->is_dropped && q->device == device)
            return true;
    return false;
}

/* Under `lock`. NULL: this mount or too many others do not answer, or no thread can be started. */
static struct statfs_query *begin_query(int fd)
{
    pthread_t thread;
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH | STATX_CACHED, STATX_INO, &st) != 0)
        return NULL;
    dev_t device = makedev(st.stx_dev_major, st.stx_dev_minor);
    int copy = query_count < QUERIES_MAX && !is_unanswered(device) ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (copy < 0)
        return NULL;
    struct statfs_query *q = xcalloc(1, sizeof *q);
    q->fd = copy;
    q->device = device;
    list_add(&queries, &q->node);
    query_count++;
    if (thread_start(&thread, run_query, q) != 0) {
        statfs_query_free(q);
        return NULL;
    }
    pthread_detach(thread);
    return q;
}

/* The result of statfs(2) on `fd`: 0 or an errno, and the type of the file system. False: no answer in time. */
static bool statfs_in_time(int fd, int *ret_error, uint64_t *ret_type)
{
    uint64_t end_ns = clock_now_ns() + ANSWER_NS;
    pthread_mutex_lock(&lock);
    struct statfs_query *q = begin_query(fd);
    while (q && !q->is_answered && clock_cond_wait(&answered, &lock, end_ns))
        ;
    bool in_time = q && q->is_answered;
    if (in_time) {
        *ret_error = q->error;
        *ret_type = q->type;
        statfs_query_free(q);
    } else if (q) {
        q->is_dropped = true;
    }
    pthread_mutex_unlock(&lock);
    return in_time;
}

static bool means_dead(int error)
{
    return error == ENOTCONN || error == ECONNABORTED;
}

static int open_mount(const char *path, int *ret, struct err *err)
{
    *ret = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? err_sys(err, errno, "cannot open the mount '%s'", path) : 0;
}

int staging_mount_is_dead(const char *path, bool *ret, struct err *err)
{
    auto_fd fd = -1;
    int error = 0;
    uint64_t type;
    int r = open_mount(path, &fd, err);
    if (r == 0)
        *ret = statfs_in_time(fd, &error, &type) && means_dead(error);
    return r;
}

/* ---- verifying --------------------------------------------------------------------------------------------------- */

enum staging_state { NOTHING, DEAD, FOREIGN, ALIVE };

static bool is_data(const struct volume *v, const struct statx *at)
{
    struct statx data;
    auto_mem char *path = volume_data_path(v);
    return statx(AT_FDCWD, path, STATX_CACHED, STATX_INO, &data) == 0 && data.stx_ino == at->stx_ino &&
           data.stx_dev_major == at->stx_dev_major && data.stx_dev_minor == at->stx_dev_minor;
}

/* FOREIGN unless `fd` is open on the topmost mount at its path. That must be the keeper's mount of this volume, or a
 * bind of its data directory. Does not ask the mount process. */
static int identify(const struct volume *v, const struct record *have, int fd, enum staging_state *ret, struct err *err)
{
    auto_with(mount_done) struct mount m = {0};
    struct statx at;
    bool found;
    int r = mount_find(have->staged, &m, &found, err);
    if (r < 0)
        return r;
    *ret = NOTHING;
    if (!found)
        return 0;
    if (statx(fd, "", AT_EMPTY_PATH | STATX_CACHED, STATX_INO | STATX_MNT_ID, &at) != 0)
        return err_sys(err, errno, "cannot stat the mount '%s'", have->staged);
    bool same = m.id == at.stx_mnt_id && m.dev_major == at.stx_dev_major && m.dev_minor == at.stx_dev_minor;
    bool ours = have->fuse ? strcmp(m.fs_type, "fuse.cistern") == 0 && strcmp(m.source, v->spec->id.text) == 0
                           : is_data(v, &at);
    *ret = same && ours ? ALIVE : FOREIGN;
    return 0;
}

static int verify(struct driver *d, const struct volume *v, const struct record *have, int *ret_fd,
                  enum staging_state *ret, struct err *err)
{
    auto_fd fd = -1;
    int error;
    uint64_t type;
    int r = open_mount(have->staged, &fd, err);
    if (r == 0)
        r = identify(v, have, fd, ret, err);
    if (r < 0 || *ret != ALIVE)
        return r;
    if (have->fuse)
        driver_keeper_wait_for_mirror(d->keeper, &v->spec->id);
    if (!statfs_in_time(fd, &error, &type))
        return err_fail(err, ERR_AGAIN, CIS_MOUNT_UNRESPONSIVE, "volume '%s': its mount at '%s' does not answer",
                        v->spec->id.text, have->staged);
    if (means_dead(error))
        *ret = DEAD;
    else if (error || (have->fuse && type != FUSE_SUPER_MAGIC))
        *ret = FOREIGN;
    else
        *ret_fd = take_fd(&fd);
    return 0;
}

/* ---- mounting ---------------------------------------------------------------------------------------------------- */

/* The keeper may still have a volume whose connection was aborted: it must drop the volume before it can mount it
 * again. */
static int unmount_dead(struct driver *d, const struct volume *v, const struct record *have, struct err *err)
{
    log_event(LOG_WARN, "the mount of a volume is lost: it is mounted again for new pods", "volume", v->spec->id.text,
              "path", have->staged, NULL);
    int r = driver_keeper_unmount(d->keeper, &v->spec->id, have->staged, err);
    return r < 0 ? r : mount_unmount(have->staged, 0, true, err);
}

/* The SELinux label of the mount, or NULL. Without SELinux nothing reads labels, and mount(8) drops the option as
 * well. */
static const char *label_of(const struct volume *v, const struct record *have)
{
    if (!have->context || mount_takes_context())
        return have->context;
    log_event(LOG_WARN, "SELinux label of a mount is dropped: this node has no SELinux", "volume", v->spec->id.text,
              "label", have->context, NULL);
    return NULL;
}

static int mount_again(struct driver *d, struct pool *p, const struct volume *v, const struct record *have,
                       struct err *err)
{
    auto_mem char *data = volume_data_path(v);
    const char *label = label_of(v, have);
    /* A release may have sealed the volume. */
    int r = have->fuse ? 0 : pool_set_volume_writable(p, &v->spec->id, true, err);
    if (r == 0)
        r = pool_attach_volume(p, &v->spec->id, err);
    if (r == 0 && !have->fuse)
        r = pool_set_volume_label(p, &v->spec->id, label, err);
    if (r < 0)
        return r;
    return have->fuse ? driver_keeper_mount(d->keeper, v->spec, data, have, label, err)
                      : mount_bind(AT_FDCWD, data, have->staged, have->read_only, err);
}

int staging_mount_open(struct driver *d, struct pool *p, const struct volume *v, const struct record *have, int *ret_fd,
                       struct err *err)
{
    enum staging_state found;
    int r = verify(d, v, have, ret_fd, &found, err);
    if (r == 0 && found == DEAD)
        r = unmount_dead(d, v, have, err);
    if (r < 0 || found == ALIVE)
        return r;
    if (found != FOREIGN)
        r = mount_again(d, p, v, have, err);
    if (r == 0 && found != FOREIGN)
        r = verify(d, v, have, ret_fd, &found, err);
    if (r < 0 || found == ALIVE)
        return r;
    if (found == DEAD)
        return err_set(err, ERR_AGAIN, "volume '%s': the keeper died right after it had mounted the volume",
                       v->spec->id.text);
    return err_fail(err, ERR_BUSY, CIS_STAGING_NOT_RESTORED, "volume '%s': cannot be mounted at '%s': %s",
                    v->spec->id.text, have->staged,
                    found == FOREIGN ? "another file system is mounted there" : "it is mounted elsewhere");
}
