/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to file://. An object appears complete and flushed, or not at all: its bytes go to a temporary in
 * WALK_HIDDEN, and a rename publishes it. */
#include "local.h"
#include "upload_id.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define XATTR_UPLOAD_ID "user.cistern.upload-id"

/* ---- temporaries ------------------------------------------------------------------------------------------------- */

static int open_hidden(int root, bool make, struct err *err)
{
    if (make && mkdirat(root, WALK_HIDDEN, 0700) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make '" WALK_HIDDEN "'");
    int fd = openat(root, WALK_HIDDEN, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : err_sys(err, errno, "cannot open '" WALK_HIDDEN "'");
}

/* A whole object is written to a nameless file if the file system supports it: a kill leaves nothing behind. */
static bool make_nameless(struct local_job *j, int root)
{
    j->fd = openat(root, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    return j->fd >= 0;
}

/* The temporary of a PUT has one name for each key and is locked while written: an unlocked one was left by a kill. */
static void name_put(struct local_job *j)
{
    upload_id_of_key(j->job.args.write.key, j->name);
    snprintf(j->name + UPLOAD_KEY_LEN, sizeof j->name - UPLOAD_KEY_LEN, ".put");
}

static int remove_forgotten(const struct local_job *j, struct err *err)
{
    struct stat st;
    auto_fd fd = openat(j->parent, j->name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "cannot open '" WALK_HIDDEN "/%s'", j->name);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return err_fail(err, ERR_AGAIN, CIS_OBJECT_BUSY, "another process is writing this object");
    /* Another process may have removed it first: a file that has the name now is in use. */
    if (fstat(fd, &st) == 0 && st.st_nlink > 0 && unlinkat(j->parent, j->name, 0) != 0)
        return err_sys(err, errno, "cannot remove '" WALK_HIDDEN "/%s'", j->name);
    return 0;
}

static int create_temporary(struct local_job *j, struct err *err)
{
    bool is_put = j->job.op == STORE_OP_PUT;
    int r = is_put ? remove_forgotten(j, err) : 0;
    if (r < 0)
        return r;
    j->fd = openat(j->parent, j->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (j->fd < 0)
        return err_sys(err, errno, "cannot create a temporary file in '" WALK_HIDDEN "'");
    if (is_put)
        (void)flock(j->fd, LOCK_EX | LOCK_NB); /* without locks (some NFS) live and stale temporaries look the same */
    return 0;
}

/* The last writer removes the empty directory, possibly between our mkdir and our first file in it: then start over. */
static int make_hidden(struct local_job *j, int root, local_visit_fn *make, struct err *err)
{
    int r = -ERR_NOT_FOUND;
    for (int tries = 0; tries < 16 && r == -ERR_NOT_FOUND; tries++) {
        r = j->parent = open_hidden(root, true, err);
        if (r < 0)
            continue;
        r = make(j, err);
        if (r < 0)
            fd_close(&j->parent);
    }
    return r;
}

/* Creates j->name, which is also the upload ID. */
static int make_temporary(struct local_job *j, int root, struct err *err)
{
    if (j->job.op == STORE_OP_PUT && make_nameless(j, root))
        return 0;
    if (j->job.op == STORE_OP_PUT)
        name_put(j);
    else
        upload_id_make(j->job.args.write.key, j->name);
    return make_hidden(j, root, create_temporary, err);
}

static int open_temporary(struct local_job *j, int root, struct err *err)
{
    struct str id = j->job.args.write.upload_id;
    if (!upload_id_is_valid(id)) /* it becomes a file's name */
        return err_set(err, ERR_NOT_FOUND, "upload '%.*s' does not exist", (int)min_u64(id.len, 64), id.ptr);
    snprintf(j->name, sizeof j->name, "%.*s", STR_FMT(id));
    int r = j->parent = open_hidden(root, false, err);
    if (r < 0)
        return r;
    j->fd = openat(j->parent, j->name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return j->fd < 0 ? err_sys(err, errno, "cannot open the upload '%s'", j->name) : 0;
}

static void remove_temporary(const struct local_job *j, int root)
{
    if (j->parent >= 0)
        unlinkat(j->parent, j->name, 0);
    unlinkat(root, WALK_HIDDEN, AT_REMOVEDIR); /* succeeds if it was the last */
}

/* ---- publishing -------------------------------------------------------------------------------------------------- */

static int mark(const struct local_job *j, struct err *err)
{
    struct str id = j->job.args.write.idempotency_token, owner = j->job.args.write.owner;
    if ((id.len == 0 || fsetxattr(j->fd, XATTR_UPLOAD_ID, id.ptr, id.len, 0) == 0) &&
        (owner.len == 0 || fsetxattr(j->fd, LOCAL_XATTR_OWNER, owner.ptr, owner.len, 0) == 0))
        return 0;
    /* Without attributes a retry cannot recognise its own object, and reports that it exists: safe, but a false
     * alarm. */
    return errno == EOPNOTSUPP ? 0 : err_sys(err, errno, "cannot mark the upload");
}

/* Did this upload create the existing object, before its reply was lost? */
static bool is_our_own(const struct local_job *j, int root)
{
    char id[256];
    struct str mine = j->job.args.write.idempotency_token;
    auto_fd fd = path_open_links(root, j->job.args.write.key.ptr, O_RDONLY | O_NONBLOCK);
    ssize_t n = fd >= 0 ? fgetxattr(fd, XATTR_UPLOAD_ID, id, sizeof id) : -1;
    return mine.len && n >= 0 && str_eq(mine, (struct str){id, (size_t)n});
}

static int exists(const struct local_job *j, int root, struct err *err)
{
    if (is_our_own(j, root))
        return 0;
    return err_fail(err, ERR_EXISTS, CIS_OBJECT_EXISTS, "an object of this name exists already");
}

static int link_nameless(const struct local_job *j, int directory, const char *name)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", j->fd);
    return linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW);
}

static int link_temporary(struct local_job *j, struct err *err)
{
    int r = remove_forgotten(j, err);
    if (r == 0 && link_nameless(j, j->parent, j->name) != 0)
        r = err_sys(err, errno, "cannot create a link to a temporary file in '" WALK_HIDDEN "'");
    return r;
}

static int refuse_name(const struct local_job *j, int root, int errnum, struct err *err)
{
    if (errnum == EEXIST)
        return exists(j, root, err);
    if (errnum == EISDIR)
        return err_set(err, ERR_INVALID, "there is a directory of this name: below file:// a key cannot be both");
    return err_sys(err, errnum, "cannot rename the temporary file to it");
}

/* There is no conditional rename: compare the object directly before. */
static int check_same(struct local_job *j, int directory, const char *name, struct err *err)
{
    struct stat st;
    char etag[LOCAL_ETAG_MAX];
    struct store_object now = {0};
    if (fstatat(directory, name, &st, 0) == 0)
        local_describe(j->job.args.write.key, &st, etag, &now);
    if (str_eq(now.etag, j->job.args.write.match)) {
        j->job.reply.guard = GUARD_HEAD;
        return 0;
    }
    return err_fail(err, ERR_EXISTS, CIS_OBJECT_EXISTS, "the object was replaced or deleted");
}

/* Renames the temporary to its name in `directory`. Only a rename replaces a file, and only a named file can be
 * renamed. */
static int put_name(struct local_job *j, int root, int directory, const char *name, struct err *err)
{
    bool absent = j->job.args.write.condition == STORE_IF_ABSENT;
    if (j->parent < 0) {
        if (link_nameless(j, directory, name) == 0)
            return 0;
        if (errno != EEXIST || absent)
            return refuse_name(j, root, errno, err);
        name_put(j);
        (void)flock(j->fd, LOCK_EX | LOCK_NB); /* lock it before it has a name, so that no sweep counts it as stale */
        int r = make_hidden(j, root, link_temporary, err);
        if (r < 0)
            return r;
    }
    int r = renameat2(j->parent, j->name, directory, name, absent ? RENAME_NOREPLACE : 0);
    /* On a file system without that flag (NFS): link(2) does not replace a file either; remove the first name
     * afterwards. */
    if (r != 0 && absent && errno == EINVAL)
        r = linkat(j->parent, j->name, directory, name, 0);
    return r == 0 ? 0 : refuse_name(j, root, errno, err);
}

/* Flush bytes, then rename, then flush the directory: a crash leaves the complete object or none. */
static int publish(struct local_job *j, int root, struct err *err)
{
    const char *name;
    struct str key = j->job.args.write.key;
    auto_fd parent = -1;
    int r = mark(j, err);
    if (r == 0 && fsync(j->fd) != 0)
        r = err_sys(err, errno, "cannot flush it");
    if (r == 0)
        r = dir_make_parents(root, key.ptr, 0777, &parent, &name, err);
    if (r == 0 && j->job.args.write.condition == STORE_IF_SAME)
        r = check_same(j, parent, name, err);
    if (r == 0)
        r = put_name(j, root, parent, name, err);
    return r < 0 ? r : dir_sync(parent, name, err);
}

static int describe_published(struct local_job *j, int root, struct err *err)
{
    struct stat st;
    auto_fd fd = path_open_links(root, j->job.args.write.key.ptr, O_RDONLY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_sys(err, errno, "cannot read its metadata");
    struct digest digest = j->job.reply.object.digest;
    local_describe(j->job.args.write.key, &st, j->etag, &j->job.reply.object);
    j->job.reply.object.digest = digest;
    return 0;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int check_digest(struct local_job *j, const struct digest *want, const struct digest *have, struct err *err)
{
    j->job.reply.object.digest = *have;
    if (want->kind == HASH_NONE || digest_eq(want, have))
        return 0;
    return err_fail(err, ERR_CORRUPT, CIS_UPLOAD_CORRUPTED, "the bytes do not have the given %s",
                    hash_name(want->kind));
}

static int write_chunk(struct local_job *j, uint64_t base, struct err *err)
{
    const struct store_body *body = &j->job.args.body;
    char name[STORE_JOB_NAME_MAX];
    if (j->moved == 0)
        hash_begin(&j->hash, body->digest.kind ? body->digest.kind : HASH_CRC32C);
    hash_update(&j->hash, j->buf, j->filled);
    return file_pwrite_all(j->fd, job_name(&j->job, name), j->buf, j->filled, base + j->moved, err);
}

static int visit_put(struct local_job *j, struct err *err)
{
    struct digest digest;
    const struct store_body *body = &j->job.args.body;
    int root;
    int r = local_root(j->job.store->self, true, &root, err);
    if (r == 0 && j->fd < 0)
        r = make_temporary(j, root, err);
    if (r == 0)
        r = write_chunk(j, 0, err);
    if (r == 0 && j->moved + j->filled < body->len)
        return 0;
    if (r == 0) {
        hash_end(&j->hash, &digest);
        r = check_digest(j, &body->digest, &digest, err);
    }
    if (r == 0)
        r = publish(j, root, err);
    if (j->parent >= 0)
        remove_temporary(j, root);
    return r < 0 ? r : describe_published(j, root, err);
}

static int visit_part(struct local_job *j, struct err *err)
{
    const struct job_args *a = &j->job.args;
    struct digest digest;
    int root;
    int r = local_root(j->job.store->self, true, &root, err);
    if (r == 0 && j->fd < 0)
        r = open_temporary(j, root, err);
    if (r == 0)
        r = write_chunk(j, (a->number - 1) * a->write.part_bytes, err);
    if (r < 0 || j->moved + j->filled < a->body.len)
        return r;
    hash_end(&j->hash, &digest);
    r = check_digest(j, &a->body.digest, &digest, err);
    if (r < 0)
        return r;
    auto_sbuf etag = SBUF(LOCAL_ETAG_MAX - 1);
    sbuf_addc(&etag, '"');
    digest_add_hex(&digest, &etag);
    sbuf_addc(&etag, '"');
    memcpy(j->etag, etag.ptr, etag.len + 1);
    j->job.reply.object = (struct store_object){
        .key = a->write.key, .size_bytes = a->body.len, .etag = {j->etag, etag.len}, .digest = digest};
    return 0;
}

static int visit_abandon(struct local_job *j, struct err *err)
{
    int root;
    (void)err; /* the first error stays */
    if (local_root(j->job.store->self, false, &root, ERR_IGNORED) == 0)
        remove_temporary(j, root);
    return j->abandoned;
}

void local_abandon(struct local_job *j, int code)
{
    j->abandoned = code;
    if (j->job.op == STORE_OP_PUT && j->fd >= 0)
        local_visit(j, visit_abandon, NULL);
    else
        local_end(j, code);
}

/* Asks the body for the next chunk; 0 or a code with j->err set. */
static int fill(struct local_job *j)
{
    const struct store_body *body = &j->job.args.body;
    size_t want = min_u64(body->len - j->moved, LOCAL_CHUNK);
    if (!j->buf && want)
        j->buf = xcalloc(1, want);
    for (j->filled = 0; j->filled < want;) {
        ssize_t n = body->read(body->ctx, j->buf + j->filled, want - j->filled, j->moved + j->filled);
        if (n < 0)
            return err_set(&j->err, ERR_CANCELLED, "given up by the writer");
        if (n == 0)
            return err_set(&j->err, ERR_IO, "the file ends after %" PRIu64 " of %" PRIu64 " bytes",
                           j->moved + j->filled, body->len);
        j->filled += (size_t)n;
    }
    return 0;
}

static void next_chunk(struct local_job *j);

static void written(struct local_job *j)
{
    j->moved += j->filled;
    if (j->moved == j->job.args.body.len)
        local_end(j, 0);
    else if (j->job.cancelled)
        local_abandon(j, err_set(&j->err, ERR_CANCELLED, "cancelled"));
    else
        next_chunk(j);
}

static void next_chunk(struct local_job *j)
{
    int r = fill(j);
    if (r < 0)
        local_abandon(j, r);
    else
        local_visit_paced(j, j->filled, j->job.op == STORE_OP_PUT ? visit_put : visit_part, written);
}

/* ---- uploads of many parts --------------------------------------------------------------------------------------- */

static int visit_begin(struct local_job *j, struct err *err)
{
    int root;
    int r = local_root(j->job.store->self, true, &root, err);
    if (r == 0)
        r = make_temporary(j, root, err);
    if (r == 0)
        j->job.reply.upload_id = str_of(j->name);
    return r;
}

/* Combines the checksums of the parts and compares them with the caller's checksum of the whole. */
static int check_parts(struct local_job *j, uint64_t size_bytes, struct err *err)
{
    const struct job_args *a = &j->job.args;
    struct digest joined = {0};
    uint64_t sum = 0;
    for (size_t i = 0; i < a->parts.count; i++) {
        const struct store_part *p = &a->parts.list[i];
        if (p->number != i + 1)
            return err_set(err, ERR_INVALID, "part %zu is missing", i + 1);
        if (i == 0)
            joined = p->digest;
        else if (joined.kind == p->digest.kind && hash_combines((enum hash_kind)joined.kind))
            digest_combine(&joined, &p->digest, p->size_bytes);
        else
            joined.kind = HASH_NONE;
        sum += p->size_bytes;
    }
    if (sum != size_bytes)
        return err_set(err, ERR_CORRUPT, "%" PRIu64 " bytes were received of %" PRIu64, size_bytes, sum);
    if (joined.kind == HASH_NONE)
        return 0;
    return check_digest(j, &a->parts.whole, &joined, err);
}

static int visit_complete(struct local_job *j, struct err *err)
{
    struct stat st;
    int root;
    int r = local_root(j->job.store->self, true, &root, err);
    if (r == 0)
        r = open_temporary(j, root, err);
    if (r == -ERR_NOT_FOUND && is_our_own(j, root))
        return describe_published(j, root, err); /* an earlier call succeeded, and its answer was lost */
    if (r == 0 && fstat(j->fd, &st) != 0)
        r = err_sys(err, errno, "cannot read its metadata");
    if (r == 0)
        r = check_parts(j, (uint64_t)st.st_size, err);
    if (r == 0)
        r = publish(j, root, err);
    if (r < 0)
        return r;
    remove_temporary(j, root);
    return describe_published(j, root, err);
}

static int visit_abort(struct local_job *j, struct err *err)
{
    int root;
    int r = local_root(j->job.store->self, false, &root, err);
    if (r == 0)
        r = open_temporary(j, root, err);
    if (r == 0)
        remove_temporary(j, root);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

static int visit_sweep(struct local_job *j, struct err *err)
{
    char ours[UPLOAD_KEY_LEN + 1];
    int root;
    int r = local_root(j->job.store->self, false, &root, err);
    if (r == 0)
        r = j->parent = open_hidden(root, false, err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    auto_dir d = dir_stream(openat(j->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot read '%s'", WALK_HIDDEN);
    struct dirent *e;
    upload_id_of_key(j->job.args.write.key, ours);
    while ((e = dir_next(d)) != NULL)
        if (strncmp(e->d_name, ours, UPLOAD_KEY_LEN) == 0 && unlinkat(j->parent, e->d_name, 0) != 0 && errno != ENOENT)
            return err_sys(err, errno, "cannot remove '%s/%s'", WALK_HIDDEN, e->d_name);
    if (errno)
        return err_sys(err, errno, "cannot read '%s'", WALK_HIDDEN);
    unlinkat(root, WALK_HIDDEN, AT_REMOVEDIR); /* unless another's uploads are in it */
    return 0;
}

static int visit_delete(struct local_job *j, struct err *err)
{
    const char *name;
    auto_fd parent = -1;
    int root;
    int r = local_root(j->job.store->self, false, &root, err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    auto_mem char *directory = str_dup(j->job.args.write.key);
    char *slash = strrchr(directory, '/');
    name = slash ? slash + 1 : directory;
    if (slash)
        *slash = '\0';
    parent = path_open_links(root, slash ? directory : ".", O_RDONLY | O_DIRECTORY);
    if (parent >= 0 && unlinkat(parent, name, 0) == 0)
        return 0;
    return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(err, errno, "cannot remove it");
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

void local_write_start(struct local_job *j)
{
    static local_visit_fn *const visits[STORE_OPS] = {
        [STORE_OP_BEGIN] = visit_begin, [STORE_OP_COMPLETE] = visit_complete, [STORE_OP_ABORT] = visit_abort,
        [STORE_OP_SWEEP] = visit_sweep, [STORE_OP_DELETE] = visit_delete,
    };
    int r = path_check(j->job.args.write.key, &j->err);
    if (r < 0)
        local_end(j, r);
    else if (visits[j->job.op])
        local_visit(j, visits[j->job.op], local_end_well);
    else
        next_chunk(j);
}
