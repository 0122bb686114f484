/* SPDX-License-Identifier: Apache-2.0 */
#include "pick.h"
#include "unit.h"
#include <math.h>

/* mtime rises with the position in the list that a test gives; the order in which files arrive is any. */
static size_t fill(struct pick_file *files, const char *const *paths)
{
    size_t n = 0;
    for (; paths[n]; n++)
        files[n] = (struct pick_file){.path = str_of(paths[n]), .size_bytes = 1, .mtime_ns = (int64_t)n + 1};
    return n;
}

static bool is_chosen(const struct pick_file *files, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(files[i].path, str_of(path)))
            return files[i].chosen;
    fail_msg("%s is not among the files", path);
    return false;
}

static bool no_score(void *ctx, const struct pick_group *g, double *ret)
{
    (void)ctx, (void)g, (void)ret;
    return false;
}

/* The number in the directory's name is its score; 3 has none, 4's is not a number. */
static bool name_score(void *ctx, const struct pick_group *g, double *ret)
{
    (void)ctx;
    *ret = g->directory.ptr[g->directory.len - 1] - '0';
    if (*ret == 4)
        *ret = NAN;
    return *ret != 3;
}

static void choose(struct pick_file *files, size_t n, const struct pick_rules *rules, pick_score *score,
                   struct pick *ret)
{
    struct err err;
    assert_int_equal(pick_files(files, n, rules, score, NULL, ret, &err), 0);
}

static void without_a_rule_everything_is_chosen(void **state)
{
    (void)state;
    struct pick_file files[8];
    size_t n = fill(files, (const char *[]){"b/x", "a", "c/step-1/m", NULL});
    struct pick p;
    choose(files, n, &(struct pick_rules){0}, no_score, &p);
    assert_string_equal(files[0].path.ptr, "a");
    for (size_t i = 0; i < n; i++)
        assert_true(files[i].chosen);
    pick_done(&p);
}

static void latest_checkpoints_are_whole_and_per_directory(void **state)
{
    (void)state;
    struct pick_file files[16];
    size_t n = fill(files, (const char *[]){"gen/step-1/m", "gen/step-2/shard_0/m", "gen/step-2/shard_1/m", "gen/log",
                                            "disc/step-9/m", "disc/step-10/m", "top", NULL});
    struct pick p;
    choose(files, n, &(struct pick_rules){.latest = 1}, no_score, &p);
    assert_int_equal(p.group_count, 4);
    assert_false(is_chosen(files, n, "gen/step-1/m"));
    assert_true(is_chosen(files, n, "gen/step-2/shard_0/m"));
    assert_true(is_chosen(files, n, "gen/step-2/shard_1/m"));
    assert_false(is_chosen(files, n, "disc/step-9/m"));
    assert_true(is_chosen(files, n, "disc/step-10/m"));
    /* A file beside checkpoints, or at the top, belongs to none and is always sent. */
    assert_true(is_chosen(files, n, "gen/log"));
    assert_true(is_chosen(files, n, "top"));
    pick_done(&p);
}

static void best_checkpoints_are_chosen_by_metrics(void **state)
{
    (void)state;
    const char *const paths[] = {"c/1/m", "c/2/m", "c/3/m", "c/4/m", "c/5/m", NULL};
    struct pick_file files[8];
    size_t n = fill(files, paths);
    struct pick_rules rules = {.best = {.file = STR("metrics.json"), .key = STR("loss"), .count = 2}};
    struct pick p;
    choose(files, n, &rules, name_score, &p);
    assert_true(is_chosen(files, n, "c/1/m") && is_chosen(files, n, "c/2/m"));
    assert_false(is_chosen(files, n, "c/3/m") || is_chosen(files, n, "c/4/m") || is_chosen(files, n, "c/5/m"));
    pick_done(&p);
    n = fill(files, paths);
    rules.best.greatest = true;
    rules.best.count = 1;
    choose(files, n, &rules, name_score, &p);
    assert_true(is_chosen(files, n, "c/5/m"));
    assert_false(is_chosen(files, n, "c/1/m"));
    pick_done(&p);
}

static void rules_add_up(void **state)
{
    (void)state;
    struct pick_file files[8];
    size_t n = fill(files, (const char *[]){"c/1/m", "c/2/m", "c/5/m", "c/6/m", "c/7/m", NULL});
    struct pick_rules rules = {.latest = 1, .every = 2, .best = {.file = STR("m.json"), .key = STR("x"), .count = 1}};
    struct pick p;
    choose(files, n, &rules, name_score, &p);
    assert_true(is_chosen(files, n, "c/1/m"));  /* best */
    assert_true(is_chosen(files, n, "c/2/m"));  /* second */
    assert_false(is_chosen(files, n, "c/5/m")); /* none */
    assert_true(is_chosen(files, n, "c/6/m"));  /* fourth */
    assert_true(is_chosen(files, n, "c/7/m"));  /* latest */
    pick_done(&p);
}

static void rules_that_choose_none_leave_the_newest(void **state)
{
    (void)state;
    const struct pick_rules all[] = {
        {.every = 4},
        {.best = {.file = STR("m.json"), .key = STR("x"), .count = 1}},
    };
    for (size_t i = 0; i < countof(all); i++) {
        struct pick_file files[8];
        size_t n = fill(files, (const char *[]){"c/1/m", "c/2/m", "c/3/m", "d/1/m", NULL});
        struct pick p;
        choose(files, n, &all[i], no_score, &p);
        assert_true(is_chosen(files, n, "c/3/m") && is_chosen(files, n, "d/1/m"));
        assert_false(is_chosen(files, n, "c/1/m") || is_chosen(files, n, "c/2/m"));
        pick_done(&p);
    }
}

static void directory_with_metrics_or_marker_is_a_checkpoint(void **state)
{
    (void)state;
    struct pick_file files[16];
    size_t n =
        fill(files, (const char *[]){"run/a/metrics.json", "run/a/x/y/m", "run/b/DONE", "run/b/m", "run/c/m", NULL});
    struct pick_rules rules = {.latest = 1, .best = {.file = STR("metrics.json")}, .marker = STR("DONE")};
    struct pick p;
    choose(files, n, &rules, no_score, &p);
    assert_int_equal(p.group_count, 3);
    assert_true(str_eq(p.groups[0].directory, STR("run/a")));
    assert_int_equal(p.groups[0].end - p.groups[0].first, 2);
    assert_true(str_eq(p.groups[1].directory, STR("run/b")));
    assert_true(str_eq(p.groups[2].directory, STR("run/c")));
    pick_done(&p);
}

static void by_file_each_file_is_a_checkpoint(void **state)
{
    (void)state;
    struct pick_file files[8];
    size_t n = fill(files, (const char *[]){"c/m1.pt", "c/m2.pt", "c/m3.pt", "d/n1.pt", NULL});
    struct pick_rules rules = {.by = PICK_BY_FILE, .latest = 2};
    struct pick p;
    choose(files, n, &rules, no_score, &p);
    assert_false(is_chosen(files, n, "c/m1.pt"));
    assert_true(is_chosen(files, n, "c/m2.pt") && is_chosen(files, n, "c/m3.pt") && is_chosen(files, n, "d/n1.pt"));
    pick_done(&p);
}

static void a_step_name_is_a_number_or_a_word_of_training_with_one(void **state)
{
    (void)state;
    const char *const yes[] = {"100", "step-900", "step_1", "global_step500", "Epoch=3", "checkpoint-10", "iter7"};
    const char *const no[] = {"", "step", "run1", "shard_0", "v2", "exp-3", "900-step", "stepson-1"};
    for (size_t i = 0; i < countof(yes); i++)
        if (!group_is_step_name(str_of(yes[i])))
            fail_msg("%s should be one", yes[i]);
    for (size_t i = 0; i < countof(no); i++)
        if (group_is_step_name(str_of(no[i])))
            fail_msg("%s should be none", no[i]);
}

static void no_file_at_all_is_fine(void **state)
{
    (void)state;
    struct pick p;
    choose(NULL, 0, &(struct pick_rules){.latest = 1}, no_score, &p);
    assert_int_equal(p.group_count, 0);
    pick_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_rule_everything_is_chosen),
        cmocka_unit_test(latest_checkpoints_are_whole_and_per_directory),
        cmocka_unit_test(best_checkpoints_are_chosen_by_metrics),
        cmocka_unit_test(rules_add_up),
        cmocka_unit_test(rules_that_choose_none_leave_the_newest),
        cmocka_unit_test(directory_with_metrics_or_marker_is_a_checkpoint),
        cmocka_unit_test(by_file_each_file_is_a_checkpoint),
        cmocka_unit_test(a_step_name_is_a_number_or_a_word_of_training_with_one),
        cmocka_unit_test(no_file_at_all_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
