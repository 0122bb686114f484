/* SPDX-License-Identifier: Apache-2.0 */
#include "walk.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>

/* Names of one directory in memory at once, and levels: a path of PATH_MAX bytes has at most half as many
 * segments. */
enum { RUN_MAX = 1 << 20, LEVELS_MAX = PATH_MAX / 2 };

/* The first eight bytes as a number decide nearly every comparison without touching the name. */
struct dir_entry {
    uint64_t head;
    uint32_t at; /* in level.text */
    uint16_t len;
    uint8_t type; /* DT_* */
};

struct walk_level {
    int fd; /* owned */
    size_t path_len;
    struct sbuf text; /* names; a directory's with a '/' at its end, as in a path: that determines the order */
    struct dir_entry *entries;
    size_t count;
    size_t room;
    size_t next;
    bool more;        /* the directory has names greater than those of this run */
    struct sbuf last; /* last name of the previous run */
};

struct local_walk {
    int root; /* owned */
    struct sbuf prefix;
    struct sbuf end_before;
    struct sbuf after; /* start_after, or the last path that was returned */
    bool delimited;
    unsigned skipped;
    struct sbuf last_skipped;
    struct walk_level *levels;
    size_t depth;
    size_t room;
    struct sbuf path;
};

static uint64_t head_of(struct str name)
{
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++)
        head = head << 8 | (i < name.len ? (unsigned char)name.ptr[i] : 0);
    return head;
}

static struct str entry_name(const struct walk_level *l, const struct dir_entry *e)
{
    return (struct str){l->text.ptr + e->at, e->len};
}

static int compare(const void *a, const void *b, void *level)
{
    const struct dir_entry *x = a, *y = b;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    return str_cmp(entry_name(level, x), entry_name(level, y));
}

static void level_done(struct walk_level *l)
{
    fd_close(&l->fd);
    sbuf_done(&l->text);
    sbuf_done(&l->last);
    free(l->entries);
    l->entries = NULL;
}

void walk_free(struct local_walk *w)
{
    if (!w)
        return;
    while (w->depth > 0)
        level_done(&w->levels[--w->depth]);
    free(w->levels);
    sbuf_done(&w->prefix);
    sbuf_done(&w->end_before);
    sbuf_done(&w->after);
    sbuf_done(&w->last_skipped);
    sbuf_done(&w->path);
    fd_close(&w->root);
    free(w);
}

/* Can `path` (a file's, or a directory's with its '/') be part of the listing, or contain such a file? */
static bool in_range(const struct local_walk *w, struct str path, bool is_directory)
{
    struct str prefix = sbuf_str(&w->prefix), after = sbuf_str(&w->after), end = sbuf_str(&w->end_before);
    bool descend = is_directory && !w->delimited;
    if (!str_starts(path, prefix) && !(is_directory && path.len < prefix.len && str_starts(prefix, path)))
        return false;
    if (end.len && str_cmp(path, end) >= 0)
        return false;
    if (after.len && str_cmp(path, after) <= 0)
        return descend && str_starts(after, path);
    return true;
}

/* The type as listed: links are resolved when the walk reaches them. DT_UNKNOWN: the entry was removed since. */
static int type_of(const struct local_walk *w, int dir, const struct dirent *e, struct err *err)
{
    struct stat st;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type;
    if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return IFTODT(st.st_mode);
    return errno == ENOENT ? DT_UNKNOWN : err_sys(err, errno, "cannot stat '%s'", w->path.ptr);
}

static void level_add(struct walk_level *l, struct str name, bool is_directory, int type)
{
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->entries = xrealloc(l->entries, l->room, sizeof *l->entries);
    }
    struct dir_entry *e = &l->entries[l->count++];
    *e = (struct dir_entry){
        .at = (uint32_t)l->text.len, .len = (uint16_t)(name.len + is_directory), .type = (uint8_t)type};
    sbuf_add(&l->text, name);
    if (is_directory)
        sbuf_addc(&l->text, '/');
    e->head = head_of(entry_name(l, e));
}

/* Sorts, and keeps the smallest RUN_MAX names: the rest is for the next run. */
static void level_sort(struct walk_level *l)
{
    if (l->count > 0) /* an empty directory has no array */
        qsort_r(l->entries, l->count, sizeof *l->entries, compare, l);
    if (l->count <= RUN_MAX)
        return;
    l->more = true;
    l->count = RUN_MAX;
    auto_sbuf kept = SBUF(l->text.ceiling);
    for (size_t i = 0; i < l->count; i++) {
        struct str name = entry_name(l, &l->entries[i]);
        l->entries[i].at = (uint32_t)kept.len;
        sbuf_add(&kept, name);
    }
    struct sbuf old = l->text;
    l->text = kept;
    kept = old;
}

static int consider(struct local_walk *w, struct walk_level *l, DIR *d, const struct dirent *e, struct err *err)
{
    struct str name = str_of(e->d_name);
    if (l->path_len == 0 && str_eq(name, STR(WALK_HIDDEN)))
        return 0;
    sbuf_cut(&w->path, l->path_len);
    sbuf_add(&w->path, name);
    if (!str_starts(sbuf_str(&w->path), sbuf_str(&w->prefix)))
        return 0; /* before its stat: an error of another file must not fail the listing */
    int type = type_of(w, dirfd(d), e, err);
    if (type < 0 || type == DT_UNKNOWN)
        return type;
    if (type == DT_DIR)
        sbuf_addc(&w->path, '/');
    if (l->last.len && str_cmp(str_from(sbuf_str(&w->path), l->path_len), sbuf_str(&l->last)) <= 0)
        return 0;
    if (w->path.overflow || !in_range(w, sbuf_str(&w->path), type == DT_DIR))
        return 0;
    level_add(l, name, type == DT_DIR, type);
    if (l->count == 2 * RUN_MAX)
        level_sort(l);
    return 0;
}

/* Reads the next run of names. */
static int level_load(struct local_walk *w, struct walk_level *l, struct err *err)
{
    if (l->more) {
        sbuf_set(&l->last, entry_name(l, &l->entries[l->count - 1]));
    }
    auto_dir d = dir_stream(openat(l->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *e;
    if (!d)
        return err_sys(err, errno, "cannot read the directory '%.*s'", (int)l->path_len,
                       w->path.ptr ? w->path.ptr : "");
    l->count = l->next = 0;
    l->more = false;
    sbuf_clear(&l->text);
    while ((e = dir_next(d)) != NULL)
        if (consider(w, l, d, e, err) < 0)
            return -(int)err->code;
    if (errno)
        return err_sys(err, errno, "cannot read the directory '%.*s'", (int)l->path_len, w->path.ptr);
    if (w->path.overflow)
        return err_set(err, ERR_INVALID, "a path below '%.*s' is longer than %d bytes", 200, w->path.ptr, PATH_MAX - 1);
    level_sort(l);
    sbuf_cut(&w->path, l->path_len);
    return 0;
}

/* Descends into the directory whose path is in w->path, with its '/'. */
static int push(struct local_walk *w, int own_fd, struct err *err)
{
    if (w->depth == LEVELS_MAX) {
        close(own_fd);
        return err_set(err, ERR_NO_SPACE, "more than %d directories deep", LEVELS_MAX);
    }
    if (w->depth == w->room) {
        w->room = w->room ? 2 * w->room : 16;
        w->levels = xrealloc(w->levels, w->room, sizeof *w->levels);
    }
    struct walk_level *l = &w->levels[w->depth++];
    *l = (struct walk_level){.fd = own_fd, .path_len = w->path.len};
    sbuf_init(&l->text, UINT32_MAX / 2);
    sbuf_init(&l->last, PATH_MAX);
    return level_load(w, l, err);
}

/* The deepest directory that the prefix names, so that a listing of "a/b/c" reads neither a nor b. */
static int enter_prefix(struct local_walk *w, struct err *err)
{
    struct str prefix = sbuf_str(&w->prefix);
    size_t len = path_directory_len(prefix);
    struct str parent = path_parent(prefix);
    if (len > 0 && path_check(parent, ERR_IGNORED) < 0)
        return 0; /* no file can have such a path: nothing is listed */
    auto_mem char *name = str_dup(len ? parent : STR("."));
    auto_fd fd = path_open_links(w->root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0)
        return err_sys(err, errno, "cannot open the directory '%s'", name);
    sbuf_add(&w->path, str_sub(prefix, 0, len));
    return push(w, take_fd(&fd), err);
}

int walk_open(const struct walk_options *o, struct local_walk **ret, struct err *err)
{
    auto_walk w = xcalloc(1, sizeof *w);
    sbuf_init(&w->prefix, PATH_MAX);
    sbuf_init(&w->after, PATH_MAX);
    sbuf_init(&w->end_before, PATH_MAX);
    sbuf_init(&w->last_skipped, PATH_MAX);
    sbuf_init(&w->path, PATH_MAX - 1);
    w->delimited = o->delimited;
    w->root = fcntl(o->root, F_DUPFD_CLOEXEC, 0);
    if (w->root < 0)
        return err_sys(err, errno, "cannot open the directory again");
    sbuf_add(&w->prefix, o->prefix);
    sbuf_add(&w->after, o->start_after);
    sbuf_add(&w->end_before, o->end_before);
    int r = w->prefix.overflow ? 0 : enter_prefix(w, err);
    if (r < 0)
        return r;
    *ret = take(&w);
    return 0;
}

unsigned walk_skipped(const struct local_walk *w)
{
    return w->skipped;
}

struct str walk_last_skipped(const struct local_walk *w)
{
    return sbuf_str(&w->last_skipped);
}

static void skip(struct local_walk *w)
{
    w->skipped++;
    sbuf_set(&w->last_skipped, sbuf_str(&w->path));
}

/* These errors mean that the name is not a regular file in the root. Other errors must not hide an object: EIO, EMFILE,
 * and EACCES for a file itself. */
static bool leads_nowhere(int type, int errnum)
{
    if (type == DT_REG)
        return errnum == ENOENT; /* removed since the listing */
    return errnum == ENOENT || errnum == ENOTDIR || errnum == ELOOP || errnum == EXDEV || errnum == EACCES;
}

/* Is the entry a file, or a link to one inside the root? 1, 0 or an error. */
static int stat_file(struct local_walk *w, const struct walk_level *l, int type, struct stat *ret, struct err *err)
{
    const char *name = w->path.ptr + l->path_len;
    bool stated = true;
    errno = 0;
    if (type == DT_REG)
        stated = fstatat(l->fd, name, ret, AT_SYMLINK_NOFOLLOW) == 0;
    if (type == DT_LNK) {
        auto_fd fd = path_open_links(w->root, w->path.ptr, O_PATH);
        stated = fd >= 0 && fstat(fd, ret) == 0;
    }
    if (!stated && !leads_nowhere(type, errno))
        return err_sys(err, errno, "cannot stat '%s'", w->path.ptr);
    bool is_file = stated && (type == DT_REG || type == DT_LNK) && S_ISREG(ret->st_mode);
    if (!is_file && type != DT_REG)
        skip(w);
    return is_file;
}

static int descend(struct local_walk *w, struct walk_level *l, struct err *err)
{
    /* Between listing and opening, a directory may be removed, or become a link: neither is followed. */
    sbuf_cut(&w->path, w->path.len - 1);
    int fd = openat(l->fd, w->path.ptr + l->path_len, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    sbuf_addc(&w->path, '/');
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (fd < 0)
        return err_sys(err, errno, "cannot open the directory '%s'", w->path.ptr);
    return push(w, fd, err);
}

static void give(struct local_walk *w, struct walk_entry *ret)
{
    sbuf_set(&w->after, sbuf_str(&w->path));
    ret->path = sbuf_str(&w->after);
}

/* One step: 1 if *ret is set, 0 to continue. */
static int step(struct local_walk *w, struct walk_entry *ret, struct err *err)
{
    struct walk_level *l = &w->levels[w->depth - 1];
    if (l->next == l->count) {
        if (l->more)
            return level_load(w, l, err);
        level_done(&w->levels[--w->depth]);
        return 0;
    }
    const struct dir_entry *e = &l->entries[l->next++];
    sbuf_cut(&w->path, l->path_len);
    sbuf_add(&w->path, entry_name(l, e));
    ret->is_directory = e->type == DT_DIR;
    if (e->type == DT_DIR && !w->delimited)
        return descend(w, l, err);
    int r = e->type == DT_DIR ? 1 : stat_file(w, l, e->type, &ret->st, err);
    if (r <= 0)
        return r;
    give(w, ret);
    return 1;
}

int walk_next(struct local_walk *w, struct walk_entry *ret, struct err *err)
{
    int r = 0;
    while (r == 0 && w->depth > 0)
        r = step(w, ret, err);
    return r;
}
