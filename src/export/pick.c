/* SPDX-License-Identifier: Apache-2.0 */
#include "pick.h"
#include "group.h"
#include "util/file.h"

static int cmp_path(const void *a, const void *b)
{
    return str_cmp(((const struct pick_file *)a)->path, ((const struct pick_file *)b)->path);
}

static struct str place_of(const struct pick_group *g)
{
    return str_sub(g->folder, 0, path_folder_len(g->folder));
}

/* Oldest first within the folder that they share; the path decides between equal times, so that two runs agree. */
static int cmp_age(const void *a, const void *b)
{
    const struct pick_group *x = *(struct pick_group *const *)a, *y = *(struct pick_group *const *)b;
    int c = str_cmp(place_of(x), place_of(y));
    if (c != 0)
        return c;
    if (x->newest_ns != y->newest_ns)
        return x->newest_ns < y->newest_ns ? -1 : 1;
    return str_cmp(x->folder, y->folder);
}

/* Best first; checkpoints without a number last; between equals the newer. */
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

/* Rules that choose none (fewer than `every`, none with a number) would lose them all: then the newest is chosen. */
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

void pick_done(struct pick *p)
{
    free(p->groups);
    *p = (struct pick){0};
}
