/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/mount.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>

/* A node with ten thousand mounts has 2 MiB of mountinfo. */
enum { MOUNTINFO_MAX = 64 << 20 };

void mount_done(struct mount *m)
{
    free(m->root);
    free(m->target);
    free(m->fs_type);
    free(m->source);
    free(m->label);
    *m = (struct mount){0};
}

void mount_list_free(struct mount *own_mounts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mount_done(&own_mounts[i]);
    free(own_mounts);
}

/* ---- one line ---------------------------------------------------------------------------------------------------- */

/* Octal escapes such as \040. The kernel escapes blanks, newlines and backslashes, always by three octal digits. */
static bool unescape(struct str s, char **ret)
{
    char *out = xcalloc(s.len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] != '\\') {
            out[n++] = s.ptr[i];
            continue;
        }
        unsigned value = 0;
        for (size_t k = 1; k <= 3; k++) {
            unsigned digit = i + k < s.len ? (unsigned)(s.ptr[i + k] - '0') : 8;
            value = digit < 8 && value < 512 ? value * 8 + digit : 512;
        }
        if (value == 0 || value > 255) {
            free(out);
            return false;
        }
        out[n++] = (char)value;
        i += 3;
    }
    *ret = out;
    return true;
}

static bool next_text(struct str *rest, char **ret)
{
    struct str field;
    return str_split(rest, ' ', &field) && unescape(field, ret);
}

static bool next_number(struct str *rest, char end, uint64_t most, uint64_t *ret)
{
    struct str field;
    return str_split(rest, end, &field) && str_to_u64(field, ret, ERR_IGNORED) == 0 && *ret <= most;
}

/* Optional fields (shared:1, master:2 ...), any number of them, end with a dash. */
static bool skip_optional(struct str *rest)
{
    struct str field;
    while (str_split(rest, ' ', &field))
        if (str_eq(field, STR("-")))
            return true;
    return false;
}

/* The kernel quotes a label that contains a comma. */
static char *label_of(struct str options)
{
    static const struct str key = STR(",context=");
    const char *at = memmem(options.ptr, options.len, key.ptr, key.len);
    if (!at)
        return NULL;
    struct str rest = str_from(options, (size_t)(at + key.len - options.ptr)), label;
    char end = str_starts(rest, STR("\"")) ? '"' : ',';
    if (end == '"')
        rest = str_from(rest, 1);
    return str_split(&rest, end, &label) && label.len > 0 ? str_dup(label) : NULL;
}

static bool parse_fields(struct str rest, struct mount *m)
{
    uint64_t dev_major, dev_minor;
    struct str options;
    if (!next_number(&rest, ' ', UINT64_MAX, &m->id) || !next_number(&rest, ' ', UINT64_MAX, &m->parent) ||
        !next_number(&rest, ':', UINT_MAX, &dev_major) || !next_number(&rest, ' ', UINT_MAX, &dev_minor) ||
        !next_text(&rest, &m->root) || !next_text(&rest, &m->target) || !str_split(&rest, ' ', &options) ||
        !skip_optional(&rest) || !next_text(&rest, &m->fs_type) || !next_text(&rest, &m->source))
        return false;
    /* The rest are the options of the file system. Some file systems do not escape blanks in them. */
    if (rest.len == 0 || m->target[0] != '/')
        return false;
    m->dev_major = (unsigned)dev_major;
    m->dev_minor = (unsigned)dev_minor;
    m->label = label_of(rest);
    return true;
}

int mount_parse(struct str line, struct mount *ret, struct err *err)
{
    struct mount m = {0};
    if (!parse_fields(line, &m)) {
        mount_done(&m);
        return err_set(err, ERR_CORRUPT, "mountinfo: invalid line: '%.*s'", (int)min_u64(line.len, 300),
                       line.len ? line.ptr : "");
    }
    *ret = m;
    return 0;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef bool wants(const struct mount *m, struct str path);

static int read_table(struct str path, wants *wanted, struct mount **ret, size_t *ret_count, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len, count = 0;
    int r = file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, &len, err);
    if (r < 0)
        return r;
    struct mount *found = NULL;
    struct str rest = {text, len}, line;
    while (str_split(&rest, '\n', &line) && line.len > 0) {
        struct mount m = {0};
        r = mount_parse(line, &m, err);
        if (r < 0) {
            mount_list_free(found, count);
            return r;
        }
        if (!wanted(&m, path)) {
            mount_done(&m);
            continue;
        }
        found = xrealloc(found, count + 1, sizeof *found);
        found[count++] = m;
    }
    *ret = found;
    *ret_count = count;
    return 0;
}

static bool is_at(const struct mount *m, struct str path)
{
    return str_eq(str_of(m->target), path);
}

static bool is_below(const struct mount *m, struct str path)
{
    struct str target = str_of(m->target);
    return str_eq(target, path) || path.len == 1 ||
           (str_starts(target, path) && target.len > path.len && target.ptr[path.len] == '/');
}

/* The path as mountinfo has it. The last segment is not followed, because the mount there may be dead. If the parent
 * does not exist, *ret stays NULL. */
static int resolve(const char *path, char **ret, struct err *err)
{
    struct str s = str_of(path);
    while (s.len > 1 && s.ptr[s.len - 1] == '/')
        s.len--;
    if (s.len == 0 || s.ptr[0] != '/')
        return err_set(err, ERR_INVALID, "'%s' is not an absolute path", path);
    const char *slash = memrchr(s.ptr, '/', s.len);
    struct str last = str_from(s, (size_t)(slash + 1 - s.ptr));
    if (s.len == 1) {
        *ret = str_dup(s);
        return 0;
    }
    if (str_eq(last, STR(".")) || str_eq(last, STR("..")))
        return err_set(err, ERR_INVALID, "'%s' ends in a dot", path);
    auto_mem char *parent = str_dup(slash == s.ptr ? STR("/") : str_sub(s, 0, (size_t)(slash - s.ptr)));
    auto_mem char *real = realpath(parent, NULL);
    if (!real && errno != ENOENT && errno != ENOTDIR)
        return err_sys(err, errno, "cannot look up '%s'", parent);
    if (!real)
        return 0;
    auto_sbuf b = SBUF(2 * PATH_MAX);
    sbuf_addf(&b, "%s%s%.*s", real, real[1] ? "/" : "", STR_FMT(last));
    return sbuf_take(&b, ret, err);
}

static int read_at(const char *path, wants *wanted, struct mount **ret, size_t *ret_count, struct err *err)
{
    auto_mem char *real = NULL;
    int r = resolve(path, &real, err);
    if (r < 0)
        return r;
    if (!real) {
        *ret = NULL;
        *ret_count = 0;
        return 0;
    }
    return read_table(str_of(real), wanted, ret, ret_count, err);
}

/* A mount stacked on another one has it as its parent. */
static bool is_covered(const struct mount *all, size_t count, const struct mount *m)
{
    for (size_t i = 0; i < count; i++)
        if (all[i].parent == m->id && all[i].id != m->id)
            return true;
    return false;
}

int mount_find(const char *path, struct mount *ret, bool *ret_found, struct err *err)
{
    struct mount *all = NULL;
    size_t count = 0, top = 0;
    int r = read_at(path, is_at, &all, &count, err);
    if (r < 0)
        return r;
    while (top + 1 < count && is_covered(all, count, &all[top]))
        top++;
    *ret_found = count > 0;
    if (count > 0)
        *ret = take(&all[top]);
    mount_list_free(all, count);
    return 0;
}

int mount_is_at(const char *path, bool *ret, struct err *err)
{
    struct mount m = {0};
    int r = mount_find(path, &m, ret, err);
    mount_done(&m);
    return r;
}

static size_t ancestors(const struct mount *all, size_t count, const struct mount *m)
{
    size_t n = 0;
    for (uint64_t id = m->parent; n < count;) {
        size_t i = 0;
        while (i < count && all[i].id != id)
            i++;
        if (i == count || all[i].parent == id)
            break;
        id = all[i].parent;
        n++;
    }
    return n;
}

struct ranked {
    size_t rank;
    size_t index;
};

static int deepest_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? 1 : -1;
    return x->index < y->index ? 1 : -1;
}

int mount_below(const char *path, struct mount **ret, size_t *ret_count, struct err *err)
{
    struct mount *all = NULL;
    size_t count = 0;
    int r = read_at(path, is_below, &all, &count, err);
    if (r < 0)
        return r;
    auto_mem struct ranked *order = xcalloc(count + 1, sizeof *order);
    for (size_t i = 0; i < count; i++)
        order[i] = (struct ranked){ancestors(all, count, &all[i]), i};
    qsort(order, count, sizeof *order, deepest_first);
    struct mount *sorted = xcalloc(count + 1, sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        sorted[i] = all[order[i].index];
    free(all);
    *ret = sorted;
    *ret_count = count;
    return 0;
}

/* ---- which mount shows a directory ------------------------------------------------------------------------------- */

static bool is_any(const struct mount *, struct str)
{
    return true;
}

/* The mount that contains `path`; `in_root` gets the path within the mounted file system. */
static struct mount *find_around(struct mount *all, size_t count, struct str path, struct sbuf *in_root)
{
    struct mount *around = NULL;
    for (size_t i = 0; i < count; i++) {
        struct str target = str_of(all[i].target);
        bool is_around = target.len == 1 || is_below(&(struct mount){.target = (char *)path.ptr}, target);
        /* Of two mounts at one place the later one in mountinfo is on top. */
        if (is_around && (!around || target.len >= strlen(around->target)))
            around = &all[i];
    }
    if (!around)
        return NULL;
    struct str root = str_of(around->root);
    size_t cut = strcmp(around->target, "/") == 0 ? 0 : strlen(around->target);
    sbuf_addf(in_root, "%.*s%.*s", root.len == 1 ? 0 : (int)root.len, root.ptr, STR_FMT(str_from(path, cut)));
    if (in_root->len == 0)
        sbuf_addf(in_root, "/");
    return around;
}

int mount_around(const char *path, struct mount *ret, bool *ret_is_root, struct err *err)
{
    struct mount *all = NULL;
    size_t count = 0;
    auto_sbuf in_root = SBUF(2 * PATH_MAX);
    auto_mem char *real = realpath(path, NULL);
    if (!real)
        return err_sys(err, errno, "cannot look up '%s'", path);
    int r = read_table(STR_NULL, is_any, &all, &count, err);
    if (r < 0)
        return r;
    struct mount *around = find_around(all, count, str_of(real), &in_root);
    if (around) {
        *ret = take(around);
        *ret_is_root = strcmp(in_root.ptr, "/") == 0;
    }
    mount_list_free(all, count);
    return around ? 0 : err_set(err, ERR_NOT_FOUND, "'%s' is in no mount of this mount namespace", path);
}

int mount_that_shows(const char *path, const char *source, char **ret, struct err *err)
{
    struct mount *all = NULL;
    size_t count = 0;
    auto_mem char *real = NULL;
    auto_sbuf in_root = SBUF(2 * PATH_MAX);
    int r = resolve(path, &real, err);
    if (r == 0)
        r = read_table(STR_NULL, is_any, &all, &count, err);
    if (r < 0)
        return r;
    const struct mount *around = real ? find_around(all, count, str_of(real), &in_root) : NULL;
    *ret = NULL;
    for (size_t i = 0; !*ret && i < count; i++) {
        struct mount at_root = {.target = all[i].root};
        bool shows = around && all[i].dev_major == around->dev_major && all[i].dev_minor == around->dev_minor &&
                     is_below(&at_root, sbuf_str(&in_root)) && strcmp(all[i].target, real) != 0;
        if (shows || strcmp(all[i].source, source) == 0)
            *ret = str_dup(str_of(all[i].target));
    }
    mount_list_free(all, count);
    return 0;
}
