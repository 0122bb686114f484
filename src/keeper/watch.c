/* SPDX-License-Identifier: Apache-2.0 */
/* Finds mount processes that answer nothing: stopped by a signal, or with threads that wait for each other. Their
 * callers wait in calls that no signal interrupts. Killing such a process loses nothing where the kernel sends its
 * requests again to the next one (Linux 6.9). */
#include "private.h"
#include "util/clock.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>

enum { LOOK_MS = 5000, STUCK_MS = 20000 }; /* documented in docs/design/004-mounts.md */

/* At the same times for all mounts, so that they wake the keeper together. */
static void look_later(struct keeper_mount *v, uint64_t now)
{
    v->look_ns = now - now % (LOOK_MS * NS_PER_MS) + LOOK_MS * NS_PER_MS;
}

void process_kill(const struct keeper_mount *v)
{
    if (v->process_fd >= 0)
        pidfd_send_signal(v->process_fd, SIGKILL, NULL, 0);
}

void watch_begin(struct keeper_mount *v, uint64_t now)
{
    if (v->connection_fd < 0)
        v->connection_fd = mountpoint_open_connection(v);
    v->answered_at_start = counts_total(&v->head->counts);
    v->waits_since_ns = 0;
    v->is_reported = false;
    look_later(v, now);
}

static void read_text(int dir, const char *path, char *ret, size_t room)
{
    auto_fd fd = dir < 0 ? -1 : openat(dir, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, room - 1);
    ret[n > 0 ? n : 0] = '\0';
}

/* Requests that the mount process has not answered, whether it has read them or not. */
static bool requests_wait(const struct keeper_mount *v)
{
    char text[24];
    read_text(v->connection_fd, "waiting", text, sizeof text);
    return strtoul(text, NULL, 10) > 0;
}

static char state_of_thread(int tasks, const char *thread)
{
    char path[NAME_MAX + sizeof "/stat"], text[512];
    snprintf(path, sizeof path, "%s/stat", thread);
    read_text(tasks, path, text, sizeof text);
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' ? name_end[2] : '\0';
}

/* D: a thread waits for the disk. R: one has a CPU, or waits for it. '\0': none of both. */
static char state_of_process(const struct keeper_mount *v)
{
    char path[32], found = '\0';
    snprintf(path, sizeof path, "/proc/%d/task", v->pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *e; tasks && found != 'D' && (e = readdir(tasks)) != NULL;) {
        char state = e->d_name[0] == '.' ? '\0' : state_of_thread(dirfd(tasks), e->d_name);
        found = state == 'D' || state == 'R' ? state : found;
    }
    if (tasks)
        closedir(tasks);
    return found;
}

/* Once, as long as no request is answered. */
static void tell(struct keeper *k, struct keeper_mount *v, const char *event, const char *what)
{
    struct err err;
    if (v->is_reported)
        return;
    v->is_reported = true;
    err_set(&err, ERR_TIMEOUT, "no request was answered for %d s: mount process %d %s", STUCK_MS / 1000, v->pid, what);
    keeper_event(k, event, v, &err);
}

/* A process that has answered no request since its start counts as one that was never ready. */
static void kill_stuck(struct keeper *k, struct keeper_mount *v, uint64_t answered, uint64_t now)
{
    if (!table_can_resend(v->head)) {
        tell(k, v, "mount process is stuck",
             "is not killed, since this kernel could not go on with another (Linux 6.9)");
        return;
    }
    v->is_reported = false;
    tell(k, v, "mount process is stuck", "is killed, and started again");
    if (answered == v->answered_at_start) {
        v->ready = false;
        v->started_ns = now;
    }
    process_kill(v);
}

void watch_look(struct keeper *k, struct keeper_mount *v, uint64_t now)
{
    uint64_t answered = counts_total(&v->head->counts); /* first: an answer to a request that waits now is not in it */
    bool is_late = now > v->look_ns + LOOK_MS * NS_PER_MS; /* the keeper was stopped, and perhaps the process too */
    look_later(v, now);
    if (!requests_wait(v)) {
        v->waits_since_ns = 0;
    } else if (v->waits_since_ns == 0 || answered != v->answered || is_late) {
        v->waits_since_ns = now;
        v->is_reported = false;
    } else if (now - v->waits_since_ns >= STUCK_MS * NS_PER_MS) {
        char state = state_of_process(v);
        if (state == 'D')
            tell(k, v, "mount waits for its disk", "waits for its disk");
        else if (state != 'R')
            kill_stuck(k, v, answered, now);
    }
    v->answered = answered;
}
