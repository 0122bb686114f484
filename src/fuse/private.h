/* SPDX-License-Identifier: Apache-2.0 */
/* private.h - The parts of a mount process, from /dev/fuse to the lower directory. Private to this room.
 *
 * home: `struct session` is frozen once the threads run, except for parts with a lock. One thread (fuse/N) handles
 * a request from its first byte to its reply; no other thread sees its `struct request`. Functions return 0 or
 * more, or -errno, which is sent to the kernel. */
#pragma once

#define FUSE_USE_VERSION 317
#include "node_table.h"
#include "util/map.h"
#include <fuse_lowlevel.h>
#include <semaphore.h>
#include <sys/stat.h>

enum { THREADS_MAX = 32, WAITING_MAX = 2, BACKINGS_KEPT = 4096 };

/* Descriptors that this process keeps by node id. */
enum node_fd_kind { NODE_FD_HELD, NODE_FD_READ, NODE_FD_WRITE, NODE_FD_KINDS };
struct node_fds {
    pthread_mutex_t lock;
    struct map entries; /* under .lock */
};

/* Node ids that a thread is opening, releasing or settling: at most one thread for a node. */
struct inode_locks {
    pthread_mutex_t lock;
    pthread_cond_t left;
    uint64_t inside[THREADS_MAX + 1]; /* under .lock */
};

struct session {
    struct node_table *table;
    struct fuse_session *fuse;
    const struct wire_config *config; /* in the table's head */
    int fuse_fd, root_fd, control_fd; /* owned */
    dev_t dev;
    bool passthrough;
    bool acl;
    double name_timeout; /* how long the kernel may cache names and attributes */
    struct node_fds fds;
    struct inode_locks inode_locks;
    atomic_uint threads, idle; /* idle: they wait for a request */
    atomic_uint parked;        /* threads that wait for their turn to do so */
    sem_t turn;
    _Atomic uint64_t kept[BACKINGS_KEPT]; /* node ids; a node with an unused backing id is at its hash's index */
};

/* ---- request.c --------------------------------------------------------------------------------------------------- */

struct request {
    struct session *session;
    struct table_intent *intent;
    struct count_reuse reuse;
    uint32_t opcode;
    int error;   /* of its reply: 0 or -errno */
    bool resent; /* a process that died began it before */
};

/* The request of the calling thread. */
struct request *request_current(void);

/* Returns `now`, the state before this request acted for the first time; for a resent request the state that an earlier
 * run recorded. */
uint64_t request_before(struct request *rq, uint64_t now);

/* Kill points for tests, in CISTERN_TEST_KILL. "<op>:before:N", "<op>:after-act:N" and "<op>:before-reply:N" kill the
 * process the Nth time. "request:memory:N" and "answer:memory:N" take away the memory of a request, or of a reply
 * longer than a page. CISTERN_TEST_STOP="<op>:<point>" stops the process there each time. Not in
 * programs that we ship. */
#ifdef CISTERN_TEST_POINTS
bool test_is_here(struct session *s, const char *op, const char *point);
void test_point(struct session *s, const char *op, const char *point);
#else
#define test_is_here(s, op, point) ((void)(s), (void)(op), false)
#define test_point(s, op, point) ((void)(s), (void)(op))
#endif

/* ---- device.c ---------------------------------------------------------------------------------------------------- */

/* Gives the libfuse session its descriptor, with reads and writes that survive SIGKILL at any moment. */
int device_attach(struct session *s);

/* Replies to a request that libfuse does not know. `error` is 0 or -errno; then there is no body. */
void device_reply(struct session *s, uint64_t unique, int error, void *body, size_t size);

/* ---- lower.c: the lower directory -------------------------------------------------------------------------------- */

/* Opens the node's file with the flags of open(2); the descriptor is the caller's. */
int lower_open(struct session *s, uint64_t id, int flags);

/* A directory as O_PATH, borrowed until this thread has asked for two others. */
int lower_dir(struct session *s, uint64_t id);
/* The same if this thread has it already, else -1. */
int lower_dir_kept(const struct session *s, uint64_t id);

/* Opens a name as O_PATH (the caller's), with its attributes and its handle. */
int lower_lookup(const struct session *s, int parent, const char *name, struct stat *ret_st,
                 struct table_handle *ret_handle);

/* The same of an open file. 0 or -errno. */
int lower_identify(const struct session *s, int fd, struct stat *ret_st, struct table_handle *ret_handle);

/* The inode number of a name, 0 if it does not exist. */
uint64_t lower_ino(int parent, const char *name);

int lower_handle(int fd, struct table_handle *ret);
/* 0 or -errno. */
int lower_chmod(int fd, mode_t mode);

/* "/proc/self/fd/N": for calls that take a path only. */
enum { FD_PATH_MAX = 40 };
const char *fd_path(int fd, char *buf);

/* ---- group.c: fsGroup. `fd` is open on the file of `st`; O_PATH will do ------------------------------------------ */

/* Does the mount show its own group instead of the file's? */
bool group_is_shown(const struct session *s, int fd, const struct stat *st);
void group_show(const struct session *s, int fd, struct stat *st); /* attributes as users see them */

/* From now on a mount of this group shows the file's own group: a user has set it. 0 or -errno. */
int group_keep(const struct session *s, int fd);
/* A file that was just made in `dir` gets its group and S_ISGID as `dir` is shown. 0 or -errno. */
int group_inherit(const struct session *s, int dir, int fd);
/* In the namespace "trusted": containers without CAP_SYS_ADMIN can neither read nor write it. No listing shows it. */
#define GROUP_MARK "trusted.cistern.group"

/* ---- fsuid.c: credentials ---------------------------------------------------------------------------------------- */

/* Until the scope ends, the thread has the user's file-system uid, and the mount's group or else the user's as gid. It
 * keeps our capabilities. The umask of the request stays set until a request with another one. */
struct fsuid_switch {
    bool on, setgid;
    uid_t uid;
    gid_t gid;
};
struct fsuid_switch fsuid_set(const struct session *s, fuse_req_t req, mode_t mode);
void fsuid_reset(struct fsuid_switch *f);
#define auto_fsuid auto_with(fsuid_reset) __attribute__((unused)) struct fsuid_switch

/* CAP_FSETID is off, so that the kernel clears set-user-id bits on writes through us. Calls that may keep the bits turn
 * it on. */
void fsuid_keep_setid(bool on);
must_check int fsuid_drop_capabilities(struct err *err);

/* ---- attr.c: the attributes of a file ---------------------------------------------------------------------------- */

/* Of the node, as users see them, with how long the kernel may cache them. Returns 0 or -errno. */
int attr_read(struct session *s, uint64_t id, struct stat *ret, double *ret_timeout);

/* Serves KERNEL_STATX, which libfuse 3.17 does not know. */
void attr_serve_statx(struct session *s, uint64_t unique, uint64_t id);

/* ---- node.c: nodes as replies ------------------------------------------------------------------------------------ */

/* Fills the reply for a name and raises its lookup count. */
int node_entry(struct request *rq, int parent, const char *name, struct fuse_entry_param *ret);
int node_entry_of_fd(struct request *rq, int fd, struct fuse_entry_param *ret);

/* How long the kernel may cache a node's attributes: 0 while stores may happen without its cache noticing. */
double node_attr_timeout(struct session *s, const struct table_node *n);

/* Clears NODE_DIRTY if no mapping that could store is left. */
void node_settle(struct session *s, uint64_t id);

/* Lowers the lookup count; at zero closes what the node had. */
void node_forget(struct request *rq, uint64_t id, uint64_t n);

/* Called before the last name of a known file is removed: holds a descriptor of it, also at the keeper if it is
 * open. Returns the node's id for node_unhold, which undoes that, or 0. */
uint64_t node_hold(struct request *rq, int fd, const struct stat *st, const struct table_handle *h);
void node_unhold(struct session *s, uint64_t id);
void node_hold_fd(struct session *s, uint64_t id, int fd, bool with_keeper);

/* ---- opens.c: opening and releasing ------------------------------------------------------------------------------ */
/* `fd` is open on the file for reading, or -1. */
int opens_add(struct request *rq, uint64_t id, int fd, struct fuse_file_info *fi);
void opens_remove(struct request *rq, uint64_t id, const struct fuse_file_info *fi);

/* A descriptor for plain reads or writes, opened once a node; borrowed until its last release. */
int opens_plain_fd(struct session *s, uint64_t id, bool write);

/* ---- backing.c: passthrough --------------------------------------------------------------------------------------
 * The kernel allows one mode (plain or passthrough) and one backing id an inode, from its first open to its last
 * release. So opens and releases of one inode run one at a time, under its lock. */
void inode_lock(struct inode_locks *l, uint64_t id);
void inode_unlock(struct inode_locks *l, uint64_t id);

int backing_open(struct request *rq, uint64_t id, int fd, int32_t *ret_backing); /* fd: as of opens_add */
void backing_close(struct session *s, struct table_intent *i, int32_t backing);

/* After a release: an unused backing id stays for the next open, which is then 5 us faster. At most one for each
 * index: the kernel needs some 500 bytes for an id, charged to this process. */
void backing_keep(struct request *rq, uint64_t id);

/* Closes the backing ids that a dead process made and did not record. */
void backing_recover(struct session *s);

/* ---- node_fds.c -------------------------------------------------------------------------------------------------- */
int node_fds_get(struct node_fds *f, uint64_t id, enum node_fd_kind kind); /* borrowed, or -1 */

/* Keeps own_fd unless there is one already; returns the one that is kept. */
int node_fds_put(struct node_fds *f, uint64_t id, enum node_fd_kind kind, int own_fd);

/* Marks the held one as known to the keeper; true if it was already. */
bool node_fds_share(struct node_fds *f, uint64_t id);
bool node_fds_is_shared(struct node_fds *f, uint64_t id);
void node_fds_close(struct node_fds *f, uint64_t id, enum node_fd_kind kind);

/* ---- ops_*.c: callbacks of libfuse; session.c makes the table ---------------------------------------------------- */
void ops_name(struct fuse_lowlevel_ops *o);
void ops_attr(struct fuse_lowlevel_ops *o);
void ops_file(struct fuse_lowlevel_ops *o);
void ops_dir(struct fuse_lowlevel_ops *o);
