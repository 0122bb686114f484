/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"
#include "util/file.h"
#include <ctype.h>
#include <sys/types.h>

/* What the search for folders asks again and again, over files sorted by path. */
struct view {
    struct pick_file *files;
    size_t count;
    const struct pick_rules *rules;
    struct str *holders; /* owned: the folders that hold a file themselves, sorted */
    size_t holder_count;
};

static struct str name_of(struct str path)
{
    struct str parent = path_parent(path);
    return str_from(path, parent.len > 0 ? parent.len + 1 : 0);
}

static bool is_below(struct str path, struct str folder)
{
    return path.len > folder.len && path.ptr[folder.len] == '/' && str_starts(path, folder);
}

bool group_is_step_name(struct str name)
{
    static const char *const words[] = {"step", "steps", "epoch", "checkpoint", "ckpt", "iter", "iteration", "batch"};
    size_t len = name.len;
    while (len > 0 && isdigit((unsigned char)name.ptr[len - 1]))
        len--;
    if (len == name.len)
        return false;
    struct str word = str_sub(name, 0, len);
    if (word.len > 0 && strchr("-_=.", word.ptr[word.len - 1]))
        word.len--;
    if (word.len == 0)
        return true;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct str w = str_of(words[i]);
        if (word.len >= w.len && str_eq_nocase(str_from(word, word.len - w.len), w))
            return true;
    }
    return false;
}

/* Compares `path` with folder + "/" + name without building it. */
static int cmp_joined(struct str path, struct str folder, struct str name)
{
    int c = str_cmp(str_sub(path, 0, folder.len), folder);
    if (c != 0)
        return c;
    struct str rest = str_from(path, folder.len);
    c = str_cmp(str_sub(rest, 0, 1), STR("/"));
    return c != 0 ? c : str_cmp(str_from(rest, 1), name);
}

static bool has_file(const struct view *v, struct str folder, struct str name)
{
    size_t lo = 0, hi = v->count;
    while (name.len > 0 && lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = cmp_joined(v->files[mid].path, folder, name);
        if (c == 0)
            return true;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

static bool is_marked(const struct view *v, struct str folder)
{
    return group_is_step_name(name_of(folder)) || has_file(v, folder, v->rules->best.file) ||
           has_file(v, folder, v->rules->marker);
}

static int cmp_str(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static void find_holders(struct view *v)
{
    v->holders = xcalloc(v->count, sizeof *v->holders);
    for (size_t i = 0; i < v->count; i++) {
        struct str parent = path_parent(v->files[i].path);
        if (parent.len > 0 && (v->holder_count == 0 || !str_eq(v->holders[v->holder_count - 1], parent)))
            v->holders[v->holder_count++] = parent;
    }
    qsort(v->holders, v->holder_count, sizeof *v->holders, cmp_str);
}

/* The folder of this file's checkpoint; empty if it has none above it. */
static struct str folder_of(const struct view *v, struct str path, bool *ret_marked)
{
    struct str holder = STR_NULL;
    for (size_t i = 0; i < path.len; i++) {
        struct str above = str_sub(path, 0, i);
        if (path.ptr[i] != '/')
            continue;
        if (is_marked(v, above)) {
            *ret_marked = true;
            return above;
        }
        if (holder.len == 0 && bsearch(&above, v->holders, v->holder_count, sizeof *v->holders, cmp_str))
            holder = above;
    }
    *ret_marked = false;
    return holder;
}

struct found {
    struct str folder;
    bool marked;
};

/* An unmarked folder above marked ones holds what lies beside checkpoints: its own files belong to none. The files
 * below one folder are neighbours in the order of paths, so each stretch is looked at once. */
static void set_loose(const struct view *v, struct found *found)
{
    for (size_t i = 0; i < v->count;) {
        if (found[i].marked || found[i].folder.len == 0) {
            i++;
            continue;
        }
        struct str folder = found[i].folder;
        size_t from = i, to = i;
        bool above_marked = false;
        while (from > 0 && is_below(v->files[from - 1].path, folder))
            above_marked |= found[--from].marked;
        while (to < v->count && is_below(v->files[to].path, folder))
            above_marked |= found[to++].marked;
        for (size_t k = from; k < to && above_marked; k++)
            if (!found[k].marked)
                found[k].folder = STR_NULL;
        i = to;
    }
}

static void find_folders(const struct view *v, struct found *found)
{
    struct str last = STR_NULL;
    for (size_t i = 0; i < v->count; i++) {
        struct str parent = path_parent(v->files[i].path);
        if (i > 0 && str_eq(parent, last))
            found[i] = found[i - 1];
        else
            found[i].folder = folder_of(v, v->files[i].path, &found[i].marked);
        last = parent;
    }
    set_loose(v, found);
}

static void find_single_files(const struct view *v, struct found *found)
{
    for (size_t i = 0; i < v->count; i++) {
        struct str name = name_of(v->files[i].path);
        bool is_metrics = v->rules->best.file.len > 0 && str_eq(name, v->rules->best.file);
        found[i].folder = is_metrics ? STR_NULL : v->files[i].path;
    }
}

static void join_groups(struct view *v, const struct found *found, struct pick_group *groups, size_t *ret_count)
{
    size_t n = 0;
    for (size_t i = 0; i < v->count; i++) {
        struct pick_file *f = &v->files[i];
        f->group = PICK_NO_GROUP;
        if (found[i].folder.len == 0)
            continue;
        if (n == 0 || !str_eq(groups[n - 1].folder, found[i].folder))
            groups[n++] = (struct pick_group){.folder = found[i].folder, .first = i, .newest_ns = INT64_MIN};
        f->group = (uint32_t)(n - 1);
        groups[n - 1].end = i + 1;
        if (f->mtime_ns > groups[n - 1].newest_ns)
            groups[n - 1].newest_ns = f->mtime_ns;
    }
    *ret_count = n;
}

void group_files(struct pick_file *files, size_t count, const struct pick_rules *rules, struct pick_group **ret_groups,
                 size_t *ret_count)
{
    struct view v = {.files = files, .count = count, .rules = rules};
    auto_mem struct found *found = xcalloc(count, sizeof *found);
    find_holders(&v);
    if (rules->by == PICK_BY_FILE)
        find_single_files(&v, found);
    else
        find_folders(&v, found);
    free(v.holders);
    *ret_groups = xcalloc(count, sizeof **ret_groups);
    join_groups(&v, found, *ret_groups, ret_count);
    *ret_groups = xrealloc(*ret_groups, *ret_count ? *ret_count : 1, sizeof **ret_groups);
}
