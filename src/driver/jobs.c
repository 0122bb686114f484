/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs.h"
#include "child.h"
#include "io/probe.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/thread.h"
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#define BACKOFF_BASE_NS NS_PER_SECOND
#define BACKOFF_CAP_NS (300 * NS_PER_SECOND)
#define ADOPTED_LOOK_NS (250 * NS_PER_MS) /* interval of the checks whether an adopted child still lives */
#define ASK_NS (15 * NS_PER_SECOND)
#define TERM_NS (2 * NS_PER_SECOND)
#define END_NS (10 * NS_PER_SECOND)

enum { ASKS_MAX = 4 }; /* without an answer; then the process is killed */

struct driver_job {
    struct list_node in_jobs;
    struct volume_id id;
    char *path; /* owned */
    enum job_kind kind;
    enum driver_job_state state;
    bool again;          /* run again when it ends */
    bool ending;         /* not requested any more: the thread removes it when no process runs */
    bool pinned;         /* the thread uses it without the lock: it may not be freed */
    uint64_t at_ns;      /* QUEUED: since; FAILED: next start; RUNNING: next check; DONE: end of its newness */
    uint64_t ask_ns;     /* RUNNING: when its process is asked for an answer next */
    unsigned unanswered; /* asks in a row */
    unsigned failures;
    struct child child; /* none: adopted, or not running */
    struct err start;   /* of FAILED: as in struct driver_job_view */
};

struct jobs {
    char *program; /* owned */
    pthread_t thread;
    int wake;             /* eventfd */
    pthread_mutex_t lock; /* guards the fields below and every job */
    pthread_cond_t changed;
    struct list all;
    size_t count;
    unsigned running;
    bool stopping;
};

static const char *kind_name(enum job_kind kind)
{
    static const char *const names[] = {"hydrate", "export (unpublish)", "export (release)"};
    return names[kind];
}

static void wake(struct jobs *j)
{
    (void)!eventfd_write(j->wake, 1); /* the eventfd is full: it wakes the thread anyway */
}

/* ---- the state machine, under the lock --------------------------------------------------------------------------- */

static void job_become(struct jobs *j, struct driver_job *job, enum driver_job_state next)
{
    static const bool allowed[][JOB_DONE + 1] = {
        [JOB_QUEUED] = {[JOB_RUNNING] = true, [JOB_FAILED] = true, [JOB_DONE] = true},
        [JOB_RUNNING] = {[JOB_FAILED] = true, [JOB_DONE] = true},
        [JOB_FAILED] = {[JOB_QUEUED] = true},
        [JOB_DONE] = {[JOB_QUEUED] = true},
    };
    assert(allowed[job->state][next]);
    j->running += (next == JOB_RUNNING) - (job->state == JOB_RUNNING);
    job->state = next;
    if (next == JOB_QUEUED)
        job->at_ns = clock_now_ns();
    if (next == JOB_DONE) {
        job->failures = 0;
        job->at_ns = clock_now_ns() + NS_PER_SECOND;
    }
    if (next == JOB_FAILED)
        job->at_ns =
            clock_now_ns() + NS_PER_SECOND + clock_backoff_ns(++job->failures, BACKOFF_BASE_NS, BACKOFF_CAP_NS);
    pthread_cond_broadcast(&j->changed);
}

static void job_ended(struct jobs *j, struct driver_job *job, bool succeeded)
{
    child_close(&job->child);
    job_become(j, job, succeeded ? JOB_DONE : JOB_FAILED);
    if (job->again) {
        job->again = false;
        job_become(j, job, JOB_QUEUED);
    }
}

static struct driver_job *find_job(struct jobs *j, const struct volume_id *id, enum job_kind kind)
{
    struct driver_job *job;
    list_foreach (&j->all, job, in_jobs)
        if (strcmp(job->id.text, id->text) == 0 && (job->kind == JOB_HYDRATE) == (kind == JOB_HYDRATE))
            return job;
    return NULL;
}

static struct driver_job *add_job(struct jobs *j, const struct volume_id *id, const char *path, enum job_kind kind)
{
    struct driver_job *job = xcalloc(1, sizeof *job);
    *job =
        (struct driver_job){.id = *id, .kind = kind, .state = JOB_QUEUED, .at_ns = clock_now_ns(), .child = NO_CHILD};
    job->path = str_dup(str_of(path));
    list_add_first(&j->all, &job->in_jobs);
    j->count++;
    return job;
}

static void job_free(struct driver_job *job)
{
    child_close(&job->child);
    free(job->path);
    free(job);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* The job that has been due for the longest time; pinned, so that it stays while the lock is released. */
static struct driver_job *pin_next(struct jobs *j,
                                   uint64_t (*due_ns)(const struct jobs *j, const struct driver_job *job))
{
    uint64_t first_ns = clock_now_ns() + 1;
    struct driver_job *job, *first = NULL;
    auto_lock(&j->lock);
    list_foreach (&j->all, job, in_jobs)
        if (due_ns(j, job) < first_ns) {
            first_ns = due_ns(j, job);
            first = job;
        }
    if (first)
        first->pinned = true;
    return first;
}

static uint64_t start_ns(const struct jobs *j, const struct driver_job *job)
{
    bool waits = job->state == JOB_QUEUED || job->state == JOB_FAILED;
    return waits && !job->ending && !j->stopping && j->running < JOBS_RUNNING_MAX ? job->at_ns : UINT64_MAX;
}

static void job_started(struct jobs *j, struct driver_job *job, struct child own_child)
{
    pthread_mutex_lock(&j->lock);
    if (job->state == JOB_FAILED)
        job_become(j, job, JOB_QUEUED);
    job_become(j, job, JOB_RUNNING);
    job->start = (struct err){0};
    job->child = own_child;
    job->at_ns = clock_now_ns() + ADOPTED_LOOK_NS;
    job->ask_ns = clock_now_ns() + ASK_NS;
    job->unanswered = 0;
    job->pinned = false;
    pthread_mutex_unlock(&j->lock);
    bool ours = own_child.fd >= 0;
    log_event(LOG_INFO, ours ? "job started" : "job found running", "job", kind_name(job->kind), "volume", job->id.text,
              "pid", ours ? log_u64((uint64_t)own_child.pid) : NULL, NULL);
}

/* A child of an earlier driver is adopted. Only this thread starts children, so none can appear between check and
 * start. If two drivers start children, the volume's lock lets only one work. */
static void start_job(struct jobs *j, struct driver_job *job)
{
    struct err err;
    struct child child;
    if (child_lives(job->kind, job->path)) {
        job_started(j, job, NO_CHILD);
        return;
    }
    int r = child_start(j->program, job->kind, job->path, &child, &err);
    if (r == 0) {
        job_started(j, job, child);
        return;
    }
    log_err(LOG_ERROR, "job cannot be started", &err, "job", kind_name(job->kind), "volume", job->id.text, NULL);
    auto_lock(&j->lock);
    if (job->state == JOB_FAILED)
        job_become(j, job, JOB_QUEUED);
    job_become(j, job, JOB_FAILED);
    job->start = err;
    job->pinned = false;
}

static uint64_t check_ns(const struct jobs *, const struct driver_job *job)
{
    return job->state == JOB_RUNNING ? job->at_ns : UINT64_MAX;
}

/* Has it ended? Our own child is reaped; for an adopted one the lock is tested. */
static bool has_ended(struct driver_job *job)
{
    siginfo_t how;
    if (job->child.fd < 0)
        return !child_lives(job->kind, job->path);
    if (!child_reap(&job->child, &how))
        return false;
    log_event(how.si_code == CLD_EXITED && how.si_status == 0 ? LOG_INFO : LOG_WARN, "job ended", "job",
              kind_name(job->kind), "volume", job->id.text, how.si_code == CLD_EXITED ? "exit" : "signal",
              log_u64((uint64_t)how.si_status), NULL);
    return true;
}

static void check_job(struct jobs *j, struct driver_job *job)
{
    bool ended = has_ended(job);
    bool succeeded = ended && child_succeeded(job->kind, job->path);
    auto_lock(&j->lock);
    if (ended)
        job_ended(j, job, succeeded);
    else
        job->at_ns = clock_now_ns() + ADOPTED_LOOK_NS;
    job->pinned = false;
}

static uint64_t ask_ns(const struct jobs *j, const struct driver_job *job)
{
    return job->state == JOB_RUNNING && !j->stopping ? job->ask_ns : UINT64_MAX;
}

/* A process of a version that does not listen is not frozen. */
static void ask_job(struct jobs *j, struct driver_job *job)
{
    struct err err;
    bool is_frozen = probe_ask(job_kind_verb(job->kind), job->path, &err) == -ERR_TIMEOUT;
    unsigned unanswered = is_frozen ? job->unanswered + 1 : 0;
    if (unanswered == ASKS_MAX) {
        log_err(LOG_WARN, "a job is killed", &err, "job", kind_name(job->kind), "volume", job->id.text, NULL);
        child_signal_all(job->kind, job->path, SIGKILL);
        unanswered = 0;
    }
    auto_lock(&j->lock);
    job->unanswered = unanswered;
    job->ask_ns = clock_now_ns() + ASK_NS;
    job->pinned = false;
}

/* Removes the jobs that are not requested and have no process. */
static void remove_ended(struct jobs *j)
{
    struct driver_job *job;
    auto_lock(&j->lock);
    list_foreach (&j->all, job, in_jobs)
        if (job->ending && job->state != JOB_RUNNING) {
            list_remove(&j->all, &job->in_jobs);
            j->count--;
            job_free(job);
            pthread_cond_broadcast(&j->changed);
        }
}

/* Sets the descriptors to poll and the timeout; false: stop. */
static bool prepare_wait(struct jobs *j, struct pollfd *polls, nfds_t *ret_count, int *ret_ms)
{
    uint64_t now_ns = clock_now_ns(), wait_ns = 60 * NS_PER_SECOND;
    *ret_count = 1;
    struct driver_job *job;
    pthread_mutex_lock(&j->lock);
    list_foreach (&j->all, job, in_jobs) {
        bool timed = job->state == JOB_FAILED || (job->state == JOB_RUNNING && job->child.fd < 0);
        if (job->state == JOB_RUNNING && job->child.fd >= 0 && *ret_count <= JOBS_RUNNING_MAX)
            polls[(*ret_count)++] = (struct pollfd){.fd = job->child.fd, .events = POLLIN};
        if (job->state == JOB_RUNNING)
            wait_ns = min_u64(wait_ns, job->ask_ns > now_ns ? job->ask_ns - now_ns : 0);
        if (timed && !(job->state == JOB_FAILED && j->running >= JOBS_RUNNING_MAX))
            wait_ns = min_u64(wait_ns, job->at_ns > now_ns ? job->at_ns - now_ns : 0);
    }
    bool go_on = !j->stopping;
    pthread_mutex_unlock(&j->lock);
    *ret_ms = (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS);
    return go_on;
}

static void mark_ready(struct jobs *j, const struct pollfd *polls, nfds_t count)
{
    struct driver_job *job;
    auto_lock(&j->lock);
    list_foreach (&j->all, job, in_jobs)
        for (nfds_t i = 1; i < count; i++)
            if (polls[i].revents && polls[i].fd == job->child.fd)
                job->at_ns = 0;
}

static void *jobs_main(void *ctx)
{
    struct jobs *j = ctx;
    struct pollfd polls[1 + JOBS_RUNNING_MAX] = {{.fd = j->wake, .events = POLLIN}};
    nfds_t count;
    int wait_ms;
    struct driver_job *job;
    while (prepare_wait(j, polls, &count, &wait_ms)) {
        if (poll(polls, count, wait_ms) > 0)
            mark_ready(j, polls, count);
        uint64_t drained;
        if (polls[0].revents && read(j->wake, &drained, sizeof drained) < 0)
            continue;
        while ((job = pin_next(j, check_ns)) != NULL)
            check_job(j, job);
        remove_ended(j);
        while ((job = pin_next(j, start_ns)) != NULL)
            start_job(j, job);
        if ((job = pin_next(j, ask_ns)) != NULL) /* one a round, and last: an ask takes seconds */
            ask_job(j, job);
    }
    return NULL;
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

int jobs_start(const char *program, struct jobs **ret, struct err *err)
{
    struct jobs *j = xcalloc(1, sizeof *j);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    j->program = str_dup(str_of(program));
    j->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int e = j->wake < 0 ? errno : thread_start(&j->thread, jobs_main, j);
    if (e) {
        fd_close(&j->wake);
        free(j->program);
        free(j);
        return err_sys(err, e, "cannot start the thread 'jobs'");
    }
    pthread_setname_np(j->thread, "jobs");
    *ret = j;
    return 0;
}

void jobs_stop(struct jobs *j)
{
    if (!j)
        return;
    pthread_mutex_lock(&j->lock);
    j->stopping = true;
    pthread_mutex_unlock(&j->lock);
    wake(j);
    pthread_join(j->thread, NULL);
    struct driver_job *job;
    while ((job = list_pop(&j->all, struct driver_job, in_jobs)) != NULL)
        job_free(job);
    close(j->wake);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    free(j->program);
    free(j);
}

/* Under the lock: applies a request to an existing job. */
static void apply_request(struct jobs *j, struct driver_job *job, enum job_kind kind, bool fresh)
{
    bool other = job->kind != kind;
    if (job->ending)
        return; /* the next call sees the result */
    /* A pinned one may have been started already. */
    if (job->pinned || job->state == JOB_RUNNING) {
        job->again |= fresh && !other;
        return;
    }
    if (other && kind == JOB_EXPORT_RELEASE) {
        job->kind = kind;
        job->failures = 0;
    }
    /* The caller found the files of a done job incomplete: another program changed them. */
    bool undone = job->state == JOB_DONE && clock_now_ns() >= job->at_ns;
    if ((job->state == JOB_FAILED && other) || (job->state == JOB_DONE && (fresh || other)) || undone)
        job_become(j, job, JOB_QUEUED);
}

int jobs_request(struct jobs *j, const struct volume_id *id, const char *path, enum job_kind kind, bool fresh,
                 struct driver_job_view *ret, struct err *err)
{
    pthread_mutex_lock(&j->lock);
    struct driver_job *job = find_job(j, id, kind);
    if (job)
        apply_request(j, job, kind, fresh);
    else if (j->count < JOBS_MAX)
        job = add_job(j, id, path, kind);
    if (job) {
        uint64_t now_ns = clock_now_ns();
        *ret = (struct driver_job_view){.state = job->state, .failures = job->failures, .start = job->start};
        ret->retry_ns = job->state == JOB_FAILED && job->at_ns > now_ns ? job->at_ns - now_ns : 0;
    }
    pthread_mutex_unlock(&j->lock);
    if (!job)
        return err_set(err, ERR_AGAIN, "volume '%s': cannot start a job: %d volumes have one, which is the maximum",
                       id->text, JOBS_MAX);
    wake(j);
    return 0;
}

/* Marks the volume's jobs as not requested; returns how many are left. */
static unsigned mark_ending(struct jobs *j, const struct volume_id *id)
{
    unsigned left = 0;
    struct driver_job *job;
    auto_lock(&j->lock);
    list_foreach (&j->all, job, in_jobs)
        if (strcmp(job->id.text, id->text) == 0) {
            job->ending = true;
            job->again = false;
            left++;
        }
    return left;
}

static bool any_lives(const char *path)
{
    return child_lives(JOB_HYDRATE, path) || child_lives(JOB_EXPORT_RELEASE, path);
}

static void wait_for_change(struct jobs *j, uint64_t wait_ns)
{
    uint64_t until_ns = clock_now_ns() + wait_ns;
    auto_lock(&j->lock);
    clock_cond_wait(&j->changed, &j->lock, until_ns);
}

int jobs_end(struct jobs *j, const struct volume_id *id, const char *path, struct err *err)
{
    uint64_t began_ns = clock_now_ns();
    bool killed = false, signalled = false;
    while (mark_ending(j, id) > 0 || any_lives(path)) {
        uint64_t waited_ns = clock_now_ns() - began_ns;
        int signal = waited_ns >= TERM_NS ? SIGKILL : SIGTERM;
        if (waited_ns >= END_NS)
            return err_set(err, ERR_TIMEOUT, "volume '%s': one of its jobs has not ended", id->text);
        if (!signalled || (signal == SIGKILL && !killed)) {
            child_signal_all(JOB_HYDRATE, path, signal);
            child_signal_all(JOB_EXPORT_RELEASE, path, signal);
            killed = signal == SIGKILL;
            signalled = true;
        }
        wake(j);
        wait_for_change(j, 50 * NS_PER_MS);
    }
    return 0;
}

unsigned jobs_running(struct jobs *j)
{
    auto_lock(&j->lock);
    return j->running;
}
