/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - the mount process: one volume, from /dev/fuse to the folder below. Private to this folder.
 *
 * home: `struct serve` is frozen once the threads run, but for what its parts guard themselves. Each request is served
 * from its first byte to its answer by one thread (fuse/N), whose `struct job` nobody else sees. Answers to the kernel
 * are errno numbers: functions here return 0 or more, or -errno. */
#pragma once

#define FUSE_USE_VERSION 317
#include "table.h"
#include <fuse_lowlevel.h>
#include <sys/stat.h>

enum { THREADS_MAX = 32 };

/* Descriptors that this process keeps by node id. */
enum fds_kind { FDS_HELD, FDS_READ, FDS_WRITE, FDS_KINDS };
struct fds {
    pthread_mutex_t lock;
    struct fds_entry *chains[256]; /* under .lock */
};

/* Nodes that somebody opens, releases or tests just now: one at a time an inode. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t left;
    uint64_t inside[THREADS_MAX + 1]; /* under .lock */
};

struct serve {
    struct table *table;
    struct fuse_session *session;
    const struct wire_config *config; /* in the table's head */
    int fuse_fd, root_fd, control_fd; /* owned */
    dev_t dev;
    bool passthrough;
    bool acl;
    double name_timeout; /* for how long the kernel may remember names and attributes */
    struct fds fds;
    struct gate gate;
    atomic_uint threads, idle;
};

/* A request in hand. */
struct job {
    struct serve *serve;
    struct intent *intent;
    struct claims claims;
    size_t hint;
    uint32_t opcode;
    int error;  /* of the answer that was given: 0 or -errno */
    bool again; /* it was begun before by a process that died */
};

/* The job of the calling thread. */
struct job *job_mine(void);

/* What `what` was before this request acted for the first time: the value given now, unless an earlier run wrote it
 * down. n counts from 0 and in order. */
uint64_t job_before(struct job *j, uint32_t n, uint64_t now);

/* Where a test may kill the process: "<op>:before:N", "<op>:after-act:N" or "<op>:before-reply:N" in
 * CISTERN_TEST_KILL dies the Nth time; "request:memory:N" and "answer:memory:N" die because the memory for a request,
 * or of an answer of more than a page, is not there. Nothing in what we ship. */
#ifdef CISTERN_TEST_POINTS
bool test_is_here(struct serve *s, const char *op, const char *point);
void test_point(struct serve *s, const char *op, const char *point);
#else
static inline bool test_is_here(struct serve *s, const char *op, const char *point)
{
    (void)s;
    (void)op;
    (void)point;
    return false;
}
static inline void test_point(struct serve *s, const char *op, const char *point)
{
    (void)s;
    (void)op;
    (void)point;
}
#endif

/* ---- device.c ---------------------------------------------------------------------------------------------------- */

/* Gives the session its descriptor, and ways to read and write it by which a SIGKILL at any moment ends nobody's
 * request. */
int device_attach(struct serve *s);

/* ---- below.c: the folder below ----------------------------------------------------------------------------------- */

/* A descriptor of the node, as open(2); the caller's. */
int below_open(struct serve *s, uint64_t id, int flags);

/* What the name leads to: an O_PATH descriptor (the caller's), its attributes and its handle. */
int below_lookup(struct serve *s, int parent, const char *name, struct stat *ret_st, struct handle *ret_handle);

/* The inode number that a name leads to, 0 if to nothing. */
uint64_t below_ino(int parent, const char *name);

/* Handle of a descriptor. */
int below_handle(int fd, struct handle *ret);

/* "/proc/self/fd/N": a way to calls that want a path. */
enum { FD_PATH_MAX = 40 };
const char *fd_path(int fd, char *buf);

/* fsGroup. `fd` is open on the file of `st`; O_PATH will do. Does the mount show its own group, not the file's? */
bool group_is_shown(const struct serve *s, int fd, const struct stat *st);
void group_show(const struct serve *s, int fd, struct stat *st); /* attributes as users see them */

/* From now on a mount of this group shows the file's own group: a user has set it. 0 or -errno. */
int group_keep(const struct serve *s, int fd);
/* The same for a file that was just made in `dir`, if it took its group from there and that one is kept. */
int group_inherit(const struct serve *s, int dir, int fd);
/* Takes our mark out of a list of extended attributes; the new length. */
size_t group_hide_mark(char *names, size_t len);

/* Makes the thread act with the user's file-system uid, gid and umask, but with our capabilities, until the scope
 * ends. */
struct guise {
    bool on;
};
struct guise guise_on(const struct serve *s, fuse_req_t req, mode_t mode);
void guise_off(struct guise *g);
#define auto_guise auto_with(guise_off) struct guise

/* CAP_FSETID is off, so that the kernel clears set-user-id bits on writes through us; it is on for the calls that may
 * keep them. */
void caps_fsetid(bool on);
must_check int caps_drop(struct err *err);

/* ---- node.c: nodes as answers ------------------------------------------------------------------------------------ */

/* Fills the answer for a name and raises its lookup count. */
int node_entry(struct job *j, int parent, const char *name, struct fuse_entry_param *ret);
int node_entry_of_fd(struct job *j, int fd, const struct stat *st, const struct handle *h,
                     struct fuse_entry_param *ret);

/* For how long the kernel may remember a node's attributes: not at all while stores may happen behind its back. */
double node_attr_timeout(struct serve *s, uint64_t id, const struct node *n);

/* If no mapping that could store is left, the mark from its being open for writing goes. */
void node_settle(struct serve *s, uint64_t id);

/* Lowers the lookup count; closes what a node that is gone had. */
void node_forget(struct job *j, uint64_t id, uint64_t n);

/* Before the last name of a file that the kernel knows goes: keeps a descriptor of it, also with the keeper if someone
 * has it open. node_unhold takes that back. */
uint64_t node_hold(struct job *j, int fd, const struct stat *st, const struct handle *h);
void node_unhold(struct serve *s, uint64_t id);
void node_hold_fd(struct serve *s, uint64_t id, int fd, bool with_keeper);

/* ---- opens.c: opening and releasing ------------------------------------------------------------------------------ */
int opens_add(struct job *j, uint64_t id, struct fuse_file_info *fi);
void opens_remove(struct job *j, uint64_t id, const struct fuse_file_info *fi);
void opens_close_backing(struct serve *s, struct intent *i, int32_t backing);
void opens_recover(struct serve *s);

/* A descriptor for plain reads or writes, opened once a node; borrowed until its last release. */
int opens_plain_fd(struct serve *s, uint64_t id, bool write);

void gate_enter(struct gate *g, uint64_t id);
void gate_leave(struct gate *g, uint64_t id);

/* ---- fds.c ------------------------------------------------------------------------------------------------------- */
int fds_get(struct fds *f, uint64_t id, enum fds_kind kind); /* borrowed, or -1 */

/* Keeps own_fd unless there is one already; returns the one that is kept. */
int fds_put(struct fds *f, uint64_t id, enum fds_kind kind, int own_fd);

/* Marks the held one as known to the keeper; true if it was. */
bool fds_share(struct fds *f, uint64_t id);
bool fds_is_shared(struct fds *f, uint64_t id);
void fds_close(struct fds *f, uint64_t id, enum fds_kind kind);

/* ---- callbacks of libfuse, a file a theme; serve.c makes the table ----------------------------------------------- */
void ops_name(struct fuse_lowlevel_ops *o);
void ops_attr(struct fuse_lowlevel_ops *o);
void ops_file(struct fuse_lowlevel_ops *o);
void ops_dir(struct fuse_lowlevel_ops *o);
void ops_init(void *user, struct fuse_conn_info *c);
