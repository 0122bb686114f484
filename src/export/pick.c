/* SPDX-License-Identifier: Apache-2.0 */
#include "pick.h"
#include "util/file.h"
#include <ctype.h>

/* ---- checkpoints: the directory that is the checkpoint of a file ------------------------------------------------- */

/* The files, sorted by path, and the results of the search. */
struct group_search {
    struct pick_file *files;
    size_t count;
    const struct pick_rules *rules;
    struct str *holders; /* owned: directories that contain a file directly, sorted */
    size_t holder_count;
};

static struct str name_of(struct str path)
{
    struct str parent = path_parent(path);
    return str_from(path, parent.len > 0 ? parent.len + 1 : 0);
}

static bool is_below(struct str path, struct str directory)
{
    return path.len > directory.len && path.ptr[directory.len] == '/' && str_starts(path, directory);
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
    for (size_t i = 0; i < countof(words); i++) {
        struct str w = str_of(words[i]);
        if (word.len >= w.len && str_eq_nocase(str_from(word, word.len - w.len), w))
            return true;
    }
    return false;
}

struct joined_path {
    struct str directory, name;
};

/* Compares directory + "/" + name with the path of a file, without building it. */
static int cmp_joined(const void *joined, const void *file)
{
    const struct joined_path *j = joined;
    struct str path = ((const struct pick_file *)file)->path, rest = str_from(path, j->directory.len);
    int c = str_cmp(j->directory, str_sub(path, 0, j->directory.len));
    if (c == 0)
        c = str_cmp(STR("/"), str_sub(rest, 0, 1));
    return c != 0 ? c : str_cmp(j->name, str_from(rest, 1));
}

static bool has_file(const struct group_search *v, struct str directory, struct str name)
{
    const struct joined_path j = {directory, name};
    return name.len > 0 && bsearch(&j, v->files, v->count, sizeof *v->files, cmp_joined);
}

static bool is_marked(const struct group_search *v, struct str directory)
{
    return group_is_step_name(name_of(directory)) || has_file(v, directory, v->rules->best.file) ||
           has_file(v, directory, v->rules->marker);
}

static int cmp_str(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static void find_holders(struct group_search *v)
{
    v->holders = xcalloc(v->count, sizeof *v->holders);
    for (size_t i = 0; i < v->count; i++) {
        struct str parent = path_parent(v->files[i].path);
        if (parent.len > 0 && (v->holder_count == 0 || !str_eq(v->holders[v->holder_count - 1], parent)))
            v->holders[v->holder_count++] = parent;
    }
    qsort(v->holders, v->holder_count, sizeof *v->holders, cmp_str);
}

/* The directory of this file's checkpoint; empty if it has none above it. */
static struct str directory_of(const struct group_search *v, struct str path, bool *ret_marked)
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

struct group_directory {
    struct str directory;
    bool marked;
};

/* Files of an unmarked directory above marked ones belong to no checkpoint. The files below one directory are
 * neighbours in the order of paths, so each range is examined once. */
static void set_loose(const struct group_search *v, struct group_directory *found)
{
    for (size_t i = 0; i < v->count;) {
        if (found[i].marked || found[i].directory.len == 0) {
            i++;
            continue;
        }
        struct str directory = found[i].directory;
        size_t from = i, to = i;
        bool above_marked = false;
        while (from > 0 && is_below(v->files[from - 1].path, directory))
            above_marked |= found[--from].marked;
        while (to < v->count && is_below(v->files[to].path, directory))
            above_marked |= found[to++].marked;
        for (size_t k = from; k < to && above_marked; k++)
            if (!found[k].marked)
                found[k].directory = STR_NULL;
        i = to;
    }
}

static void find_directories(const struct group_search *v, struct group_directory *found)
{
    struct str last = STR_NULL;
    for (size_t i = 0; i < v->count; i++) {
        struct str parent = path_parent(v->files[i].path);
        if (i > 0 && str_eq(parent, last))
            found[i] = found[i - 1];
        else
            found[i].directory = directory_of(v, v->files[i].path, &found[i].marked);
        last = parent;
    }
    set_loose(v, found);
}

static void find_single_files(const struct group_search *v, struct group_directory *found)
{
    for (size_t i = 0; i < v->count; i++) {
        struct str name = name_of(v->files[i].path);
        bool is_metrics = v->rules->best.file.len > 0 && str_eq(name, v->rules->best.file);
        found[i].directory = is_metrics ? STR_NULL : v->files[i].path;
    }
}

static void join_groups(struct group_search *v, const struct group_directory *found, struct pick_group *groups,
                        size_t *ret_count)
{
    size_t n = 0;
    for (size_t i = 0; i < v->count; i++) {
        struct pick_file *f = &v->files[i];
        f->group = PICK_NO_GROUP;
        if (found[i].directory.len == 0)
            continue;
        if (n == 0 || !str_eq(groups[n - 1].directory, found[i].directory))
            groups[n++] = (struct pick_group){.directory = found[i].directory, .first = i, .newest_ns = INT64_MIN};
        f->group = (uint32_t)(n - 1);
        groups[n - 1].end = i + 1;
        if (f->mtime_ns > groups[n - 1].newest_ns)
            groups[n - 1].newest_ns = f->mtime_ns;
    }
    *ret_count = n;
}

/* Finds the checkpoints of files sorted by path, and sets each file's `group`. */
static void group_files(struct pick_file *files, size_t count, const struct pick_rules *rules,
                        struct pick_group **ret_groups, size_t *ret_count)
{
    struct group_search v = {.files = files, .count = count, .rules = rules};
    auto_mem struct group_directory *found = xcalloc(count, sizeof *found);
    find_holders(&v);
    if (rules->by == PICK_BY_FILE)
        find_single_files(&v, found);
    else
        find_directories(&v, found);
    free(v.holders);
    *ret_groups = xcalloc(count, sizeof **ret_groups);
    join_groups(&v, found, *ret_groups, ret_count);
    *ret_groups = xrealloc(*ret_groups, *ret_count ? *ret_count : 1, sizeof **ret_groups);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static int cmp_path(const void *a, const void *b)
{
    return str_cmp(((const struct pick_file *)a)->path, ((const struct pick_file *)b)->path);
}

static struct str place_of(const struct pick_group *g)
{
    return str_sub(g->directory, 0, path_directory_len(g->directory));
}

/* Oldest first within the directory that they share; the path decides between equal times, so that two runs agree. */
static int cmp_age(const void *a, const void *b)
{
    const struct pick_group *x = *(struct pick_group *const *)a, *y = *(struct pick_group *const *)b;
    int c = str_cmp(place_of(x), place_of(y));
    if (c != 0)
        return c;
    if (x->newest_ns != y->newest_ns)
        return x->newest_ns < y->newest_ns ? -1 : 1;
    return str_cmp(x->directory, y->directory);
}

/* Best first; checkpoints without a number last; equal ones newest first. */
static int cmp_score(const void *a, const void *b, void *greatest)
{
    const struct pick_group *x = *(struct pick_group *const *)a, *y = *(struct pick_group *const *)b;
    if (x->has_score != y->has_score)
        return x->has_score ? -1 : 1;
    if (x->has_score && x->score != y->score)
        return (x->score > y->score) == *(const bool *)greatest ? -1 : 1;
    return cmp_age(b, a);
}

static void choose_best(struct pick_group **siblings, size_t n, const struct pick_rules *rules)
{
    bool greatest = rules->best.greatest;
    qsort_r(siblings, n, sizeof(struct pick_group *), cmp_score, &greatest);
    for (size_t i = 0; i < n && i < rules->best.count && siblings[i]->has_score; i++)
        siblings[i]->chosen = true;
}

/* Rules may choose no checkpoint (fewer than `every`, none with a number), and all would be lost: then choose the
 * newest. */
static void choose_siblings(struct pick_group **siblings, size_t n, const struct pick_rules *rules)
{
    struct pick_group *newest = siblings[n - 1];
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        bool is_latest = rules->latest > 0 && n - i <= rules->latest;
        bool is_turn = rules->every > 0 && (i + 1) % rules->every == 0;
        siblings[i]->chosen = is_latest || is_turn;
    }
    choose_best(siblings, n, rules);
    for (size_t i = 0; i < n; i++)
        any |= siblings[i]->chosen;
    newest->chosen |= !any;
}

static void choose_by_rules(struct pick *p, const struct pick_rules *rules, pick_score *score, void *ctx)
{
    auto_mem struct pick_group **order = xcalloc(p->group_count, sizeof(struct pick_group *));
    for (size_t i = 0; i < p->group_count; i++) {
        struct pick_group *g = order[i] = &p->groups[i];
        g->has_score = rules->best.count > 0 && score(ctx, g, &g->score) && g->score == g->score; /* not a NaN */
    }
    qsort(order, p->group_count, sizeof(struct pick_group *), cmp_age);
    for (size_t i = 0, k; i < p->group_count; i = k) {
        for (k = i + 1; k < p->group_count && str_eq(place_of(order[i]), place_of(order[k])); k++)
            ;
        choose_siblings(order + i, k - i, rules);
    }
}

int pick_files(struct pick_file *files, size_t count, const struct pick_rules *rules, pick_score *score, void *ctx,
               struct pick *ret, struct err *err)
{
    if (count > PICK_FILES_MAX)
        return err_set(err, ERR_NO_SPACE, "more than %d files to choose from", PICK_FILES_MAX);
    if (count > 0)
        qsort(files, count, sizeof *files, cmp_path);
    struct pick p = {0};
    group_files(files, count, rules, &p.groups, &p.group_count);
    bool has_rule = rules->latest > 0 || rules->every > 0 || rules->best.count > 0;
    if (has_rule)
        choose_by_rules(&p, rules, score, ctx);
    for (size_t i = 0; i < p.group_count && !has_rule; i++)
        p.groups[i].chosen = true;
    for (size_t i = 0; i < count; i++)
        files[i].chosen = files[i].group == PICK_NO_GROUP || p.groups[files[i].group].chosen;
    *ret = p;
    return 0;
}

const struct pick_file *pick_find(const struct pick_file *files, size_t count, struct str path)
{
    const struct pick_file key = {.path = path};
    return count > 0 ? bsearch(&key, files, count, sizeof *files, cmp_path) : NULL;
}

void pick_done(struct pick *p)
{
    free(p->groups);
    *p = (struct pick){0};
}
