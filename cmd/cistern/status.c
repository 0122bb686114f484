/* SPDX-License-Identifier: Apache-2.0 */
/* cistern status - Shows the volumes of this machine, read from the pools' files. It needs no running driver, takes no
 * lock and repairs nothing. */
#include "hydrate/status.h"
#include "cistern.h"
#include "cli/exit.h"
#include "cli/table.h"
#include "cli/term.h"
#include "export/verdict.h"
#include "pool/volume.h"
#include "util/clock.h"
#include "util/env.h"
#include "util/file.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

static const char usage[] = "Usage: cistern status [VOLUME or DIR] [flags]\n\n"
                            "Shows the volumes of this machine, their progress and errors. DIR is a pool, a volume, or "
                            "a directory\nthat `cistern hydrate` fills.\n\n"
                            "  cistern status --pool /mnt/disks/cistern --watch\n"
                            "  cistern status --errors ./dataset\n\nFlags:\n";

#define POOL_DEFAULT "/mnt/disks/cistern" /* the chart's */

static struct {
    struct opt_list pools;
    bool errors;
    bool watch;
} flags;

static const struct opt table_of_flags[] = {
    {"pool", 0, OPT_LIST, &flags.pools, "DIR", "show this pool (repeatable; CISTERN_POOL, else " POOL_DEFAULT ")"},
    {"errors", 0, OPT_FLAG, &flags.errors, NULL, "list the errors below the table"},
    {"watch", 'w', OPT_FLAG, &flags.watch, NULL, "print again every second until interrupted"},
    {0},
};

struct status_view {
    char *id;   /* owned; the path of a directory that is not a volume */
    char *name; /* owned; "": not set */
    uint64_t capacity_bytes;
    int64_t created_ns;
    bool hydrates;                    /* `hydration` was read */
    bool alive;                       /* a process hydrates it */
    struct hydrate_status *hydration; /* owned */
    struct verdict export;
    bool wants_data; /* it has a source, so it is ready only when hydrated */
    struct err err;  /* code != 0: it cannot be read */
};

static void view_free(struct status_view *v)
{
    if (!v)
        return;
    verdict_done(&v->export);
    free(v->hydration);
    free(v->name);
    free(v->id);
    free(v);
}
DEFINE_AUTO(status_view, struct status_view, view_free)
#define auto_view auto_with(auto_clean_status_view) struct status_view *

struct status_page {
    struct table table;
    struct sbuf lines; /* JSON, or the errors below the table */
    size_t count;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct status_view *view_new(const char *id)
{
    struct status_view *v = xcalloc(1, sizeof *v);
    v->id = str_dup(str_of(id));
    v->name = str_dup(STR_NULL);
    v->hydration = xcalloc(1, sizeof *v->hydration);
    verdict_init(&v->export);
    return v;
}

static int read_hydration(struct status_view *v, int dir, struct err *err)
{
    int r = hydrate_status_read(dir, v->hydration, err);
    v->alive = hydrate_is_alive(dir);
    v->hydrates = r == 0;
    return r == -ERR_NOT_FOUND ? 0 : r;
}

static int read_volume(struct status_view *v, const char *path, struct err *err)
{
    auto_volume volume = NULL;
    int r = volume_open(path, &volume, err);
    if (r < 0)
        return r;
    free(v->name);
    v->name = str_dup(str_of(volume->spec->name));
    v->capacity_bytes = volume->spec->capacity_bytes;
    v->created_ns = volume->spec->created_ns;
    v->wants_data = spec_is_hydrated(volume->spec);
    r = read_hydration(v, volume->dir, err);
    return r < 0 ? r : verdict_read(volume->dir, &v->export, err);
}

/* ---- table and JSON ---------------------------------------------------------------------------------------------- */

/* The export's phase, if it has one: it comes after the hydration. */
static const char *phase_of(const struct status_view *v)
{
    if (v->err.code)
        return "Unreadable";
    const char *of_export = verdict_phase(&v->export);
    if (of_export)
        return of_export;
    if (!v->hydrates)
        return v->wants_data ? "Provisioning" : "Ready";
    return hydrate_phase_label(v->hydration->phase, v->alive);
}

static bool is_moving(const struct status_view *v)
{
    return v->hydrates && v->alive && v->hydration->phase < HYDRATE_DONE;
}

static uint64_t errors_of(const struct status_view *v)
{
    return v->hydration->objects_failed + v->hydration->has_error + v->export.failed_files + (v->err.code != 0);
}

static void add_row(struct status_page *r, const struct status_view *v)
{
    char progress[16] = "-", done[BYTES_TEXT_MAX] = "-", total[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX + 2] = "-";
    char eta[TIME_TEXT_MAX] = "-", errors[24], age[TIME_TEXT_MAX] = "-", size[BYTES_TEXT_MAX] = "-";
    const struct hydrate_status *h = v->hydration;
    uint64_t now = (uint64_t)clock_wall_ns(), since = (uint64_t)(v->created_ns ? v->created_ns : h->started_ns);
    if (v->hydrates)
        bytes_text(h->bytes_done, done);
    /* Of nothing, all is done; but while it lists, the total is not known. */
    if (v->hydrates && (h->bytes_total || h->phase > HYDRATE_LISTING))
        snprintf(progress, sizeof progress, "%u%%",
                 h->bytes_total ? (unsigned)(100.0 * (double)h->bytes_done / (double)h->bytes_total) : 100U);
    if (is_moving(v)) {
        snprintf(rate, sizeof rate, "%s/s", bytes_text(h->bytes_per_second, total));
        if (h->eta_seconds < 1000000)
            duration_text(h->eta_seconds * NS_PER_SECOND, eta);
    }
    if (v->capacity_bytes)
        bytes_text(v->capacity_bytes, size);
    if (since && now > since)
        duration_text((now - since) / NS_PER_SECOND * NS_PER_SECOND, age);
    snprintf(errors, sizeof errors, "%" PRIu64, errors_of(v));
    table_add(&r->table,
              (struct str[]){str_of(v->id), str_of(v->name), str_of(phase_of(v)), str_of(size), str_of(progress),
                             str_of(done), v->hydrates ? str_of(bytes_text(h->bytes_total, total)) : STR("-"),
                             str_of(rate), str_of(eta), str_of(errors), str_of(age)});
}

typedef void add_error(struct sbuf *b, const struct status_view *v, const char *object, enum err_id id,
                       enum err_code code, const char *message);

static void each_error(struct sbuf *b, const struct status_view *v, add_error *add)
{
    const struct hydrate_status *h = v->hydration;
    char line[ERR_LINE_MAX];
    if (h->has_error)
        add(b, v, h->error.object, h->error.id, h->error.code, h->error.message);
    for (size_t i = 0; i < h->error_count; i++)
        add(b, v, h->errors[i].object, h->errors[i].id, h->errors[i].code, h->errors[i].message);
    for (size_t i = 0; i < v->export.failed_count; i++) {
        const struct err *why = &v->export.failed[i].err;
        add(b, v, v->export.failed[i].path, why->id, why->code, err_line(why, line, sizeof line));
    }
}

static void add_error_line(struct sbuf *b, const struct status_view *v, const char *object, enum err_id id,
                           enum err_code code, const char *message)
{
    auto_sbuf text = SBUF(TERM_LINE_MAX);
    sbuf_addf(&text, "%s: %s%s%s", v->id, object, *object ? ": " : "", message);
    term_add_visible(b, sbuf_str(&text), TERM_LINE_MAX);
    if (id && !strstr(message, "(CIS"))
        sbuf_addf(b, " (CIS%04u, %s)", id, err_code_name(code));
    sbuf_addc(b, '\n');
}

static void add_errors(struct sbuf *b, const struct status_view *v)
{
    char line[ERR_LINE_MAX];
    if (v->err.code)
        sbuf_addf(b, "%s: %s\n", v->id, err_line(&v->err, line, sizeof line));
    each_error(b, v, add_error_line);
}

/* One line for each volume, in the form of `cistern hydrate --json`. */
static void print_json_error(struct sbuf *b, const struct status_view *v, const char *object, enum err_id id,
                             enum err_code code, const char *message)
{
    term_json_begin(b, "error");
    term_json_str(b, "volume", str_of(v->id));
    if (*object)
        term_json_str(b, "object", str_of(object));
    term_json_fault(b, id, code, message);
    term_json_end(b, stdout);
}

static void print_json(struct status_page *r, const struct status_view *v)
{
    const struct hydrate_status *h = v->hydration;
    struct sbuf *b = &r->lines;
    term_json_begin(b, "volume");
    term_json_str(b, "volume", str_of(v->id));
    term_json_str(b, "name", str_of(v->name));
    term_json_str(b, "phase", str_of(phase_of(v)));
    term_json_u64(b, "capacity_bytes", v->capacity_bytes);
    if (v->hydrates) {
        term_json_u64(b, "objects", h->objects_done);
        term_json_u64(b, "objects_total", h->objects_total);
        term_json_u64(b, "objects_failed", h->objects_failed);
        term_json_u64(b, "bytes", h->bytes_done);
        term_json_u64(b, "bytes_total", h->bytes_total);
    }
    if (is_moving(v)) {
        term_json_u64(b, "rate", h->bytes_per_second);
        if (h->eta_seconds != UINT64_MAX)
            term_json_u64(b, "eta_seconds", h->eta_seconds);
    }
    if (v->export.state != VERDICT_NONE) {
        term_json_str(b, "export", str_of(verdict_state_name(v->export.state)));
        term_json_u64(b, "export_pending_bytes", v->export.pending_bytes);
        term_json_u64(b, "export_done_bytes", v->export.done_bytes);
    }
    term_json_u64(b, "errors", errors_of(v));
    if (v->err.code)
        term_json_error(b, &v->err);
    term_json_end(b, stdout);
    if (flags.errors)
        each_error(b, v, print_json_error);
}

static void show(struct status_page *r, const struct status_view *v)
{
    r->count++;
    if (globals.json) {
        print_json(r, v);
        return;
    }
    add_row(r, v);
    if (flags.errors || v->err.code)
        add_errors(&r->lines, v);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static char *joined(const char *directory, const char *name)
{
    auto_sbuf b = SBUF(8192);
    sbuf_addf(&b, "%s/%s", directory, name);
    return str_dup(sbuf_str(&b));
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static void show_volume(struct status_page *r, const char *path, const char *id)
{
    auto_view v = view_new(id);
    struct err err;
    if (read_volume(v, path, &err) < 0)
        err_copy(&v->err, &err);
    show(r, v);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_volume_name(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int show_pool(struct status_page *r, const char *pool, struct err *err)
{
    auto_mem char *directory = joined(pool, "volumes");
    struct dirent **entries;
    int n = scandir(directory, &entries, is_volume_name, by_name);
    if (n < 0) {
        err_sys(err, errno, "cannot read the pool '%s'", pool);
        return err_advise(err, CIS_POOL_NOT_FOUND);
    }
    for (int i = 0; i < n; i++) {
        auto_mem char *path = joined(directory, entries[i]->d_name);
        show_volume(r, path, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return 0;
}

/* The state directory of `cistern hydrate URI DIR`: in DIR, or beside it until DIR is complete. */
static int open_state(const char *dir)
{
    auto_mem char *inside = joined(dir, ".cistern-hydrate");
    int fd = open(inside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    auto_mem char *copy = str_dup(str_of(dir));
    size_t len = strlen(copy);
    while (len > 1 && copy[len - 1] == '/')
        copy[--len] = '\0';
    char *slash = strrchr(copy, '/');
    auto_sbuf beside = SBUF(8192);
    sbuf_addf(&beside, "%.*s.%s.cistern", slash ? (int)(slash - copy) + 1 : 0, copy, slash ? slash + 1 : copy);
    return open(beside.ptr, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int show_directory(struct status_page *r, const char *dir, struct err *err)
{
    auto_fd state = open_state(dir);
    if (state < 0)
        return err_fail(err, ERR_NOT_FOUND, CIS_DIRECTORY_UNKNOWN,
                        "'%s' is not a pool, not a volume, and not a directory that was hydrated", dir);
    auto_view v = view_new(dir);
    int found = read_hydration(v, state, err);
    if (found < 0)
        err_copy(&v->err, err);
    v->hydrates = found == 0; /* a run that has just started has no status yet */
    show(r, v);
    return 0;
}

static int show_named(struct status_page *r, const char *name, struct err *err)
{
    auto_mem char *spec = joined(name, VOLUME_SPEC), *volumes = joined(name, "volumes");
    if (exists(spec)) {
        const char *slash = strrchr(name, '/');
        show_volume(r, name, slash && slash[1] ? slash + 1 : name);
        return 0;
    }
    if (exists(volumes))
        return show_pool(r, name, err);
    for (size_t i = 0; i < flags.pools.count && !strchr(name, '/'); i++) {
        auto_mem char *directory = joined(flags.pools.items[i], "volumes");
        auto_mem char *path = joined(directory, name);
        if (exists(path)) {
            show_volume(r, path, name);
            return 0;
        }
    }
    return show_directory(r, name, err);
}

static int gather(struct status_page *r, int argc, char **argv, struct err *err)
{
    for (int i = 1; i < argc; i++) {
        int failed = show_named(r, argv[i], err);
        if (failed < 0)
            return failed;
    }
    for (size_t i = 0; argc == 1 && i < flags.pools.count; i++) {
        int failed = show_pool(r, flags.pools.items[i], err);
        if (failed < 0)
            return failed;
    }
    return 0;
}

static int print_page(int argc, char **argv, struct err *err)
{
    static const char *const headings[] = {"VOLUME", "NAME",  "PHASE", ">SIZE",   ">PROGRESS", ">DONE",
                                           ">TOTAL", ">RATE", ">ETA",  ">ERRORS", ">AGE",      NULL};
    struct status_page r = {0};
    auto_sbuf text = SBUF(64 << 20);
    sbuf_init(&r.lines, 16 << 20);
    table_init(&r.table, headings);
    int failed = gather(&r, argc, argv, err);
    if (failed == 0 && !globals.json) {
        if (flags.watch && isatty(STDOUT_FILENO))
            sbuf_adds(&text, "\x1b[H\x1b[J");
        if (r.count)
            table_write(&r.table, &text);
        else
            sbuf_adds(&text, "no volumes\n");
        sbuf_add(&text, sbuf_str(&r.lines));
        fwrite(text.ptr, 1, text.len, stdout);
    }
    fflush(stdout);
    table_done(&r.table);
    sbuf_done(&r.lines);
    return failed;
}

int verb_status(int argc, char **argv)
{
    struct err err;
    int ends = verb_begin(table_of_flags, usage, &argc, argv);
    if (ends >= 0)
        return ends;
    const char *named = env_get("CISTERN_POOL");
    if (flags.pools.count == 0)
        flags.pools.items[flags.pools.count++] = named ? named : POOL_DEFAULT;
    int r = print_page(argc, argv, &err);
    while (r == 0 && flags.watch && !ferror(stdout)) {
        clock_sleep(NS_PER_SECOND);
        r = print_page(argc, argv, &err);
    }
    return r < 0 ? (int)exit_with(&err, globals.json) : EXIT_DONE;
}
