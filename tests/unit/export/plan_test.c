/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "plan.h"
#include <stdio.h>
#include <sys/stat.h>

static struct spec *policy; /* what is exported, with every default */
static struct logbook *book;
static int book_dir;

static int setup(void **state)
{
    struct err err;
    if (folder_setup(state) != 0 || mkdirat(dir, "data", 0700) != 0 || mkdirat(dir, "book", 0700) != 0)
        return 1;
    book_dir = openat(dir, "book", O_RDONLY | O_DIRECTORY);
    policy = spec_new();
    return logbook_open(book_dir, STR("s3://bucket/"), &book, &err);
}

static int teardown(void **state)
{
    logbook_free(book);
    close(book_dir);
    spec_free(policy);
    return folder_teardown(state);
}

static void set(const char *key, const char *value)
{
    struct err err;
    if (spec_set(policy, str_of(key), str_of(value), &err) < 0)
        fail_msg("%s", err.text);
}

static void put(const char *path, const char *text)
{
    struct err err;
    const char *name;
    auto_fd data = openat(dir, "data", O_RDONLY | O_DIRECTORY), parent = -1;
    assert_int_equal(dir_make_parents(data, path, 0700, &parent, &name, &err), 0);
    auto_fd fd = openat(parent, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(file_write_all(fd, name, text, strlen(text), &err), 0);
}

static struct export_plan made_with(struct plan_options o)
{
    struct err err;
    struct export_plan p;
    auto_fd data = openat(dir, "data", O_RDONLY | O_DIRECTORY);
    o.policy = &policy->export;
    o.logbook = book;
    o.data = data;
    if (plan_make(&o, &p, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static struct export_plan made(void)
{
    return made_with((struct plan_options){.since_ns = INT64_MIN});
}

static bool is_chosen(const struct export_plan *p, const char *path)
{
    for (size_t i = 0; i < p->count; i++)
        if (str_eq(p->files[i].path, str_of(path)))
            return p->files[i].chosen;
    return false;
}

static void files_excluded_by_the_policy_are_not_in_the_plan(void **state)
{
    (void)state;
    set("export.include", "**/*.bin");
    set("export.exclude", "tmp/**");
    put("a/one.bin", "1");
    put("a/notes", "2");
    put("tmp/two.bin", "3");
    struct export_plan p = made();
    assert_int_equal(p.count, 1);
    assert_true(is_chosen(&p, "a/one.bin"));
    plan_done(&p);
    plan_done(&p);
}

static bool came_from_the_bucket(void *ctx, const struct walk_file *f)
{
    return str_eq(f->path, str_of(ctx));
}

static void hydrated_files_are_not_in_the_plan(void **state)
{
    (void)state;
    put("base", "1");
    put("new", "2");
    struct export_plan p = made_with(
        (struct plan_options){.since_ns = INT64_MIN, .ctx = (char[]){"base"}, .is_hydrated = came_from_the_bucket});
    assert_int_equal(p.hydrated, 1);
    assert_int_equal(p.count, 1);
    assert_true(is_chosen(&p, "new"));
    plan_done(&p);
}

static void only_what_changed_since_then_is_looked_at(void **state)
{
    (void)state;
    put("file", "1");
    struct export_plan p = made_with((struct plan_options){.since_ns = INT64_MAX});
    assert_int_equal(p.count, 0);
    plan_done(&p);
}

static void sent_files_are_known_by_their_state(void **state)
{
    (void)state;
    struct err err;
    put("file", "1");
    struct export_plan p = made();
    assert_false(p.files[0].sent);
    struct stamp s = {p.files[0].size_bytes, p.files[0].mtime_ns, p.files[0].ctime_ns, p.files[0].inode};
    assert_int_equal(logbook_add(book, STR("file"), &s, STR("p/file"), STR_NULL, &err), 0);
    plan_done(&p);
    p = made();
    assert_true(p.files[0].sent);
    plan_done(&p);
    put("file", "12");
    p = made();
    assert_false(p.files[0].sent);
    plan_done(&p);
}

static void the_best_checkpoint_is_the_one_whose_number_says_so(void **state)
{
    (void)state;
    set("export.select.group", "directory");
    set("export.select.best.file", "metrics.json");
    set("export.select.best.key", "eval.loss");
    set("export.select.best.order", "min");
    set("export.select.best.count", "1");
    put("step-1/metrics.json", "{\"eval\":{\"loss\":0.5}}");
    put("step-2/metrics.json", "{\"eval\":{\"loss\":0.25}}");
    put("step-3/metrics.json", "{\"eval\":{\"loss\":1e999}}");
    put("step-4/metrics.json", "no json");
    put("step-5/metrics.json", "");
    put("step-6/weights", "without metrics");
    assert_int_equal(plan_rules(&policy->export).by, PICK_BY_DIRECTORY);
    assert_int_equal(plan_rules(&policy->export).best.count, 1);
    struct export_plan p = made();
    assert_int_equal(p.count, 6);
    for (size_t i = 0; i < p.count; i++)
        assert_int_equal(p.files[i].chosen, str_eq(p.files[i].path, STR("step-2/metrics.json")));
    plan_done(&p);
}

static unsigned skips;
static void on_skip(void *ctx, struct str path, const char *why)
{
    (void)ctx;
    assert_true(str_eq(path, STR("link")));
    assert_true(why[0] != '\0');
    skips++;
}

static void other_kinds_of_entries_are_skipped_by_name(void **state)
{
    (void)state;
    put("file", "1");
    assert_int_equal(symlinkat("file", dir, "data/link"), 0);
    struct export_plan p = made_with((struct plan_options){.since_ns = INT64_MIN, .on_skip = on_skip});
    assert_int_equal(p.skipped, 1);
    assert_int_equal(skips, 1);
    plan_done(&p);
}

static unsigned questions, answers_no;
static bool is_stopped(void *ctx)
{
    (void)ctx;
    return ++questions > answers_no;
}

static void plan_stopped_at_any_moment_fails(void **state)
{
    (void)state;
    struct err err;
    struct export_plan p;
    int r = -1;
    set("export.select.group", "directory");
    set("export.select.best.file", "metrics.json");
    set("export.select.best.key", "loss");
    set("export.select.best.order", "min");
    set("export.select.best.count", "1");
    put("step-1/metrics.json", "{\"loss\":1}");
    put("step-2/metrics.json", "{\"loss\":2}");
    auto_fd data = openat(dir, "data", O_RDONLY | O_DIRECTORY);
    struct plan_options o = {
        .policy = &policy->export, .logbook = book, .data = data, .since_ns = INT64_MIN, .is_stopped = is_stopped};
    for (answers_no = 0; r < 0; answers_no++) {
        questions = 0;
        r = plan_make(&o, &p, &err);
        assert_true(r == 0 || r == -ERR_CANCELLED);
        assert_int_equal(r<0, questions> answers_no);
    }
    assert_true(answers_no > 7 && p.count == 2 && p.files[0].chosen && !p.files[1].chosen);
    plan_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_excluded_by_the_policy_are_not_in_the_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(hydrated_files_are_not_in_the_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(only_what_changed_since_then_is_looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(sent_files_are_known_by_their_state, setup, teardown),
        cmocka_unit_test_setup_teardown(the_best_checkpoint_is_the_one_whose_number_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(other_kinds_of_entries_are_skipped_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(plan_stopped_at_any_moment_fails, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
