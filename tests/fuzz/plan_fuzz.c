/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a training's directory. The first byte selects names of files, a line each, from which checkpoints are
 * chosen; or a metrics file of any bytes. */
#include "directory.h"
#include "fuzz.h"
#include "pick.h"
#include "plan.h"
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

enum { NAMES_MAX = 64 };

/* A number that follows from the name alone, and so is the same in each order; some have none, some no number. */
static bool score_of(void *ctx, const struct pick_group *g, double *ret)
{
    unsigned char last = (unsigned char)g->directory.ptr[g->directory.len - 1];
    (void)ctx;
    *ret = last == 'n' ? NAN : last % 7;
    return last % 5 != 0;
}

static size_t read_names(struct str rest, struct pick_file *files)
{
    struct err ignored;
    struct str name;
    size_t count = 0;
    while (count < NAMES_MAX && str_split(&rest, '\n', &name)) {
        bool is_new = path_check(name, &ignored) == 0;
        for (size_t i = 0; i < count; i++)
            is_new &= !str_eq(files[i].path, name);
        if (is_new)
            files[count++] = (struct pick_file){.path = name, .mtime_ns = (int64_t)(str_hash(name, 0) % 8)};
    }
    return count;
}

static void check_group(const struct pick *p, size_t g, const struct pick_file *files, size_t count)
{
    const struct pick_group *group = &p->groups[g];
    assert(group->first < group->end && group->end <= count && group->directory.len > 0);
    for (size_t i = group->first; i < group->end; i++)
        assert(files[i].group == g && str_starts(files[i].path, group->directory));
}

static void check_pick(const struct pick *p, const struct pick_rules *rules, const struct pick_file *files,
                       size_t count)
{
    bool has_rule = rules->latest > 0 || rules->every > 0 || rules->best.count > 0;
    size_t grouped = 0, chosen = 0;
    for (size_t i = 0; i < count; i++) {
        grouped += files[i].group != PICK_NO_GROUP;
        assert(i == 0 || str_cmp(files[i - 1].path, files[i].path) < 0);
        assert(files[i].group == PICK_NO_GROUP || files[i].group < p->group_count);
        assert(files[i].chosen == (files[i].group == PICK_NO_GROUP || p->groups[files[i].group].chosen));
    }
    for (size_t g = 0; g < p->group_count; g++) {
        check_group(p, g, files, count);
        grouped -= p->groups[g].end - p->groups[g].first;
        chosen += p->groups[g].chosen;
    }
    assert(grouped == 0);
    assert(has_rule || chosen == p->group_count);
    assert(rules->latest == 0 || chosen >= min_u64(rules->latest, p->group_count > 0));
}

static void check_names(uint8_t flags, struct str names)
{
    struct pick_file files[NAMES_MAX], again[NAMES_MAX];
    const struct pick_rules rules = {.by = flags & 1 ? PICK_BY_FILE : PICK_BY_DIRECTORY,
                                     .latest = flags >> 1 & 3,
                                     .every = flags >> 3 & 3,
                                     .best = {STR("metrics.json"), STR("loss"), flags & 32, flags >> 6},
                                     .marker = flags & 32 ? STR("DONE") : STR_NULL};
    struct pick p, q;
    struct err err;
    size_t count = read_names(names, files);
    for (size_t i = 0; i < count; i++)
        again[i] = files[count - 1 - i];
    int r = pick_files(files, count, &rules, score_of, NULL, &p, &err);
    r |= pick_files(again, count, &rules, score_of, NULL, &q, &err);
    assert(r == 0 && p.group_count == q.group_count);
    check_pick(&p, &rules, files, count);
    for (size_t i = 0; i < count; i++)
        assert(files[i].chosen == again[i].chosen && files[i].group == again[i].group);
    pick_done(&p);
    pick_done(&q);
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

static struct {
    int data;
    struct spec *policy;
    struct logbook *book;
} t = {.data = -1};

static void set_up(void)
{
    static const char *const pairs[][2] = {{"export.select.best.file", "metrics.json"},
                                           {"export.select.best.key", "eval.loss"},
                                           {"export.select.best.order", "min"},
                                           {"export.select.group", "directory"}};
    struct err err;
    sigset_t leases;
    sigemptyset(&leases);
    sigaddset(&leases, SIGIO);
    pthread_sigmask(SIG_BLOCK, &leases, NULL);
    int r = mkdirat(fuzz_folder(), "data", 0700);
    t.data = openat(fuzz_folder(), "data", O_RDONLY | O_DIRECTORY);
    r |= mkdirat(t.data, "step-1", 0700) | mkdirat(t.data, "step-2", 0700);
    r |= logbook_open(fuzz_folder(), STR("s3://bucket/"), &t.book, &err);
    t.policy = spec_new();
    for (size_t i = 0; i < countof(pairs); i++)
        r |= spec_set(t.policy, str_of(pairs[i][0]), str_of(pairs[i][1]), &err);
    assert(r == 0);
    fuzz_file(t.data, "step-1/weights", STR("1"));
    fuzz_file(t.data, "step-2/weights", STR("2"));
    fuzz_file(t.data, "step-2/metrics.json", STR("{\"eval\":{\"loss\":0}}"));
}

/* The best of the two is the one of the lower number: the other has 0. One without a number is never the best. */
static void check_metrics(struct str text)
{
    struct err err = {0};
    struct export_plan p;
    double loss = 1;
    auto_json j = NULL;
    if (t.data < 0)
        set_up();
    bool has_number = json_parse(text, "it", &j, &err) == 0 && json_get_real(j, "eval.loss", &loss, &err) == 0;
    fuzz_file(t.data, "step-1/metrics.json", text);
    const struct plan_options o = {
        .policy = &t.policy->export, .logbook = t.book, .data = t.data, .since_ns = INT64_MIN};
    int r = plan_make(&o, &p, &err);
    assert(r == 0 && p.count == 4 && p.error_count == 0 && p.pick.group_count == 2);
    assert(p.pick.groups[0].has_score == (has_number && isfinite(loss)) && p.pick.groups[1].has_score);
    assert(p.pick.groups[0].chosen + p.pick.groups[1].chosen == 1);
    if (!has_number || loss != 0)
        assert(p.pick.groups[0].chosen == (has_number && loss < 0));
    plan_done(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 2)
        return 0;
    if (bytes[0] & 1)
        check_metrics(fuzz_str(bytes + 1, len - 1));
    else
        check_names(bytes[1], fuzz_str(bytes + 2, len - 2));
    return 0;
}
