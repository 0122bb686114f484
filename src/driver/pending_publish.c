/* SPDX-License-Identifier: Apache-2.0 */
#include "pending_publish.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>
#include <pthread.h>

/* The kubelet waits two minutes for an answer. An earlier answer can report the progress, a timeout cannot. */
#define WAIT_NS (100 * NS_PER_SECOND)
#define MARGIN_NS NS_PER_SECOND
#define LOOK_FIRST_NS (20 * NS_PER_MS)
#define LOOK_LAST_NS (500 * NS_PER_MS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the fields below, and the entries of the list */
static struct list pendings;

void pending_publish_begin(struct pending_publish *w, const struct volume_id *id, const char *target)
{
    auto_lock(&lock);
    *w = (struct pending_publish){.id = id, .target = target, .is_in = true};
    list_add(&pendings, &w->in_all);
}

void pending_publish_end(struct pending_publish *w)
{
    if (!w->is_in)
        return;
    auto_lock(&lock);
    list_remove(&pendings, &w->in_all);
    w->is_in = false;
}

/* Finds the calls for a volume, or at a path; the other argument is NULL. */
static void cancel(const struct volume_id *id, const char *target, enum publish_state why)
{
    struct pending_publish *w;
    auto_lock(&lock);
    list_foreach (&pendings, w, in_all)
        if ((id && strcmp(w->id->text, id->text) == 0) || (target && strcmp(w->target, target) == 0))
            w->state = why;
}

void pending_publish_cancel_volume(const struct volume_id *id)
{
    cancel(id, NULL, PUBLISH_VOLUME_RELEASING);
}

void pending_publish_cancel_target(const char *target)
{
    cancel(NULL, target, PUBLISH_TARGET_UNPUBLISHED);
}

int pending_publish_releasing(const struct volume_id *id, struct err *err)
{
    return err_fail(err, ERR_BUSY, CIS_VOLUME_RELEASING, "volume '%s': being released", id->text);
}

static int pod_has_gone(const struct volume_id *id, struct err *err)
{
    return err_fail(err, ERR_AGAIN, CIS_PUBLISH_CANCELLED, "volume '%s': publish cancelled: its pod is being deleted",
                    id->text);
}

int pending_publish_check(const struct pending_publish *w, struct err *err)
{
    pthread_mutex_lock(&lock);
    enum publish_state state = w->state;
    pthread_mutex_unlock(&lock);
    switch (state) {
    case PUBLISH_WAITING:
        break;
    case PUBLISH_VOLUME_RELEASING:
        return pending_publish_releasing(w->id, err);
    case PUBLISH_TARGET_UNPUBLISHED:
        return pod_has_gone(w->id, err);
    }
    return 0;
}

#define DRIVERS "kubernetes.io~csi"

static DIR *open_dir(int dir, const char *name)
{
    return dir_stream(openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/* The directory of a kind stays when its last volume is removed. */
static bool has_volumes(int volumes, const char *kind)
{
    auto_dir d = open_dir(volumes, kind);
    return d && dir_next(d);
}

bool pod_volumes_exist(const char *target)
{
    const char *end = strstr(target, "/volumes/" DRIVERS "/");
    if (!end)
        return false;
    auto_mem char *path = str_dup((struct str){target, (size_t)(end - target) + strlen("/volumes")});
    auto_dir volumes = open_dir(AT_FDCWD, path);
    struct dirent *kind;
    bool found = false;
    while (volumes && !found && (kind = dir_next(volumes)) != NULL)
        found = strcmp(kind->d_name, DRIVERS) != 0 && has_volumes(dirfd(volumes), kind->d_name);
    return found;
}

/* The pod's other volumes existed before, and were removed. */
static int check_pod(const struct pending_publish *w, bool *had_siblings, struct err *err)
{
    bool has_siblings = pod_volumes_exist(w->target);
    if (*had_siblings && !has_siblings)
        return pod_has_gone(w->id, err);
    *had_siblings = has_siblings;
    return 0;
}

static int failed(const struct driver *d, const struct volume *v, const char *why, const struct driver_job_view *job,
                  struct err *err)
{
    char wait[TIME_TEXT_MAX];
    const char *when = d->is_node                 ? "by its Job"
                       : job->state != JOB_FAILED ? "now"
                                                  : duration_text(job->retry_ns, wait);
    return err_fail(err, ERR_AGAIN, CIS_HYDRATION_FAILED,
                    "volume '%s': not ready: its hydration failed (retried %s%s): %s", v->spec->id.text,
                    when == wait ? "in " : "", when, why);
}

static uint64_t end_of_wait(struct rpc_call *call)
{
    uint64_t deadline_ns = rpc_deadline_ns(call), ours_ns = clock_now_ns() + WAIT_NS;
    return deadline_ns == UINT64_MAX ? ours_ns : min_u64(ours_ns, deadline_ns - min_u64(deadline_ns, MARGIN_NS));
}

int pending_publish_wait(struct driver *d, struct rpc_call *call, const struct volume *v,
                         const struct pending_publish *w, struct err *err)
{
    char text[HEALTH_TEXT_MAX];
    struct driver_job_view job;
    bool has_failed, had_siblings = false;
    uint64_t end_ns = end_of_wait(call);
    for (unsigned looks = 0; !volume_read_progress(v, text, &has_failed); looks++) {
        int r = pending_publish_check(w, err);
        if (r == 0)
            r = check_pod(w, &had_siblings, err);
        if (r == 0)
            r = driver_request_job(d, v, JOB_HYDRATE, false, &job, err);
        if (r < 0)
            return r;
        if (job.state == JOB_FAILED && (has_failed || job.start.code))
            return failed(d, v, job.start.code ? job.start.text : text, &job, err);
        uint64_t now_ns = clock_now_ns(), next_ns = now_ns + clock_doubled_ns(looks, LOOK_FIRST_NS, LOOK_LAST_NS);
        if (now_ns >= end_ns || !rpc_sleep_until(call, min_u64(next_ns, end_ns)))
            return err_fail(err, ERR_AGAIN, CIS_VOLUME_NOT_READY, "volume '%s': not ready: %s", v->spec->id.text, text);
    }
    return 0;
}
