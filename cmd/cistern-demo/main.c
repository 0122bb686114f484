/* SPDX-License-Identifier: Apache-2.0 */
/* cistern-demo - Runs a volume through its whole life on this machine, and removes everything. */
#include "cli/exit.h"
#include "cli/opt.h"
#include "demo.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/thread.h"
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { CHECKPOINTS_MAX = 256 };
static const uint64_t train_before_kill_ns = 3 * NS_PER_SECOND, report_every_ns = 4 * NS_PER_SECOND;
static const unsigned kills = 2;

struct checkpoint {
    char path[96];
    uint64_t bytes;
    char sum[16];
};

struct story {
    /* asked for */
    const char *source; /* NULL: we make one */
    struct demo_data data;
    bool keep;
    /* made */
    char work[64];
    int work_dir;
    char source_uri[512], export_uri[128];
    struct demo_driver *driver; /* owned */
    struct demo_volume volume;
    /* the trainer's report */
    struct checkpoint checkpoints[CHECKPOINTS_MAX];
    size_t checkpoint_count;
    uint64_t reads, bytes_read, errors;
    char first_error[256];
    const char *step;
    _Atomic uint64_t step_began_ns; /* report_time() reads it */
};

static volatile sig_atomic_t interrupted;

static void interrupt(int)
{
    interrupted = 1;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void print_step(const char *step)
{
    printf("%s  %-10s ", isatty(STDOUT_FILENO) ? "\r\033[K" : "", step);
}

static void begin(struct story *s, const char *name)
{
    s->step_began_ns = clock_now_ns();
    s->step = name;
    print_step(name);
    fflush(stdout);
}

/* On a loaded machine a step takes long, and says nothing until its end. */
static void *report_time(void *ctx)
{
    const struct story *s = ctx;
    while (poll(NULL, 0, (int)(report_every_ns / NS_PER_MS)) == 0) {
        char took[TIME_TEXT_MAX];
        uint64_t spent_ns = clock_now_ns() - s->step_began_ns;
        if (spent_ns >= report_every_ns)
            fprintf(stderr, "(%s so far) ", duration_text(spent_ns, took));
    }
    return NULL;
}

static void step_done(const struct story *s, const char *fmt, ...) printf_like(2, 3);
static void step_done(const struct story *s, const char *fmt, ...)
{
    char took[TIME_TEXT_MAX], line[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (isatty(STDOUT_FILENO)) /* in place of the times that the step took so far */
        print_step(s->step);
    printf("%-88s %8s\n", line, duration_text(clock_now_ns() - s->step_began_ns, took));
}

static char *rate_text(uint64_t bytes, uint64_t ns, char *buf)
{
    char per_second[BYTES_TEXT_MAX];
    bytes_text((uint64_t)((double)bytes * (double)NS_PER_SECOND / (double)max_u64(ns, 1)), per_second);
    snprintf(buf, BYTES_TEXT_MAX + 4, "%.15s/s", per_second);
    return buf;
}

/* Called before each retry; false once a person interrupts the demo. */
static bool go_on(const char *sentence)
{
    if (isatty(STDOUT_FILENO)) {
        print_step("waiting");
        printf("%.100s", sentence);
    }
    fflush(stdout);
    return !interrupted;
}

/* ---- the volume -------------------------------------------------------------------------------------------------- */

static int make_work(struct story *s, struct err *err)
{
    snprintf(s->work, sizeof s->work, "/var/tmp/cistern-demo-XXXXXX");
    if (!mkdtemp(s->work))
        return err_sys(err, errno, "cannot make a directory in /var/tmp");
    int r = dir_open(AT_FDCWD, s->work, &s->work_dir, err);
    if (r < 0)
        return r;
    static const char *const directories[] = {"bucket", "exported", "pool", "state", "staging", "target"};
    for (size_t i = 0; i < countof(directories); i++)
        if (mkdirat(s->work_dir, directories[i], 0755) != 0)
            return err_sys(err, errno, "cannot make '%s/%s'", s->work, directories[i]);
    snprintf(s->export_uri, sizeof s->export_uri, "file://%s/exported/", s->work);
    snprintf(s->volume.staging, sizeof s->volume.staging, "%s/staging", s->work);
    snprintf(s->volume.target, sizeof s->volume.target, "%s/target/data", s->work);
    return 0;
}

static int make_bucket(struct story *s, struct err *err)
{
    if (s->source) {
        snprintf(s->source_uri, sizeof s->source_uri, "%s", s->source);
        return 0;
    }
    char size[BYTES_TEXT_MAX];
    auto_fd bucket = -1;
    begin(s, "bucket");
    int r = dir_open(s->work_dir, "bucket", &bucket, err);
    if (r == 0)
        r = demo_data_make(bucket, &s->data, err);
    if (r < 0)
        return r;
    snprintf(s->source_uri, sizeof s->source_uri, "file://%s/bucket/", s->work);
    step_done(s, "%" PRIu64 " objects, %s, made in %s", s->data.objects, bytes_text(s->data.bytes, size),
              s->source_uri);
    return 0;
}

static int create(struct story *s, struct err *err)
{
    char size[BYTES_TEXT_MAX];
    /* Twice the data plus checkpoints; a source of unknown size gets a fixed size. */
    uint64_t bytes = s->source ? UINT64_C(20) << 30 : s->data.bytes * 2 + (UINT64_C(1) << 30);
    begin(s, "driver");
    int r = demo_driver_start(s->work, &s->driver, err);
    if (r < 0)
        return r;
    step_done(s, "%s serves unix://%s/csi.sock", demo_driver_name(s->driver), s->work);
    begin(s, "create");
    r = demo_volume_create(s->driver, s->source_uri, s->export_uri, bytes, &s->volume, err);
    if (r < 0)
        return r;
    step_done(s, "CreateVolume: %s, %s; hydration has started", s->volume.id, bytes_text(bytes, size));
    return 0;
}

static int publish(struct story *s, struct err *err)
{
    char size[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX + 4];
    uint64_t began_ns = clock_now_ns();
    begin(s, "publish");
    int r = demo_volume_publish(s->driver, &s->volume, go_on, err);
    if (r < 0)
        return r;
    if (s->source)
        step_done(s, "hydrated and mounted at %s", s->volume.target);
    else
        step_done(s, "hydrated and mounted: %s (%s)", bytes_text(s->data.bytes, size),
                  rate_text(s->data.bytes, clock_now_ns() - began_ns, rate));
    return 0;
}

/* ---- the trainer ------------------------------------------------------------------------------------------------- */

static int start_trainer(struct story *s, pid_t *ret_pid, FILE **ret_report, struct err *err)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return err_sys(err, errno, "cannot make a pipe");
    const char *argv[] = {"cistern-demo", "--train", s->volume.target, NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pipe_fds[1], STDOUT_FILENO);
    int spawned = demo_spawn(ret_pid, "/proc/self/exe", &files, argv);
    posix_spawn_file_actions_destroy(&files);
    close(pipe_fds[1]);
    if (spawned != 0) {
        close(pipe_fds[0]);
        return err_sys(err, spawned, "cannot start the trainer");
    }
    *ret_report = fdopen(pipe_fds[0], "r");
    return 0;
}

static void read_report_line(struct story *s, const char *line)
{
    struct checkpoint *c = &s->checkpoints[s->checkpoint_count];
    if (s->checkpoint_count < CHECKPOINTS_MAX &&
        sscanf(line, "checkpoint %95s %" SCNu64 " %15s", c->path, &c->bytes, c->sum) == 3)
        s->checkpoint_count++;
    else if (strncmp(line, "error ", 6) == 0 && !s->first_error[0])
        snprintf(s->first_error, sizeof s->first_error, "%.*s", (int)strcspn(line + 6, "\n"), line + 6);
    else
        sscanf(line, "stopped %" SCNu64 " %" SCNu64 " %" SCNu64, &s->reads, &s->bytes_read, &s->errors);
}

/* Trains while the mount process is killed, then stops the trainer and reads its report. */
static int train_under_fire(struct story *s, pid_t trainer, FILE *report, struct err *err)
{
    for (unsigned i = 0; i < kills && !interrupted; i++) {
        uint64_t wait_ms = train_before_kill_ns / NS_PER_MS;
        poll(NULL, 0, (int)wait_ms);
        int r = demo_mount_kill(s->driver, &s->volume, err);
        if (r < 0)
            return r;
    }
    poll(NULL, 0, (int)(train_before_kill_ns / NS_PER_MS));
    kill(trainer, SIGTERM);
    char line[512];
    while (fgets(line, sizeof line, report))
        read_report_line(s, line);
    return 0;
}

static int train(struct story *s, struct err *err)
{
    pid_t trainer;
    FILE *report;
    begin(s, "train");
    int r = start_trainer(s, &trainer, &report, err);
    if (r < 0)
        return r;
    uint64_t began_ns = clock_now_ns();
    r = train_under_fire(s, trainer, report, err);
    if (r < 0)
        kill(trainer, SIGKILL);
    fclose(report);
    int status;
    waitpid(trainer, &status, 0);
    if (r < 0)
        return r;
    if (interrupted) /* perhaps before the trainer handled the signal */
        return err_set(err, ERR_CANCELLED, "interrupted");
    if (s->errors || s->first_error[0] || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, ERR_IO, "the trainer failed: %s", s->first_error[0] ? s->first_error : "it died");
    char size[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX + 4];
    step_done(s, "%" PRIu64 " reads, %s (%s), %zu checkpoint files, %u x kill -9 of the mount, 0 errors", s->reads,
              bytes_text(s->bytes_read, size), rate_text(s->bytes_read, clock_now_ns() - began_ns, rate),
              s->checkpoint_count, kills);
    return s->checkpoint_count ? 0 : err_set(err, ERR_INTERNAL, "the trainer wrote no checkpoint");
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int verify_data(struct story *s, struct err *err)
{
    if (s->source)
        return 0;
    auto_fd bucket = -1, mounted = -1;
    uint64_t files, bytes;
    char size[BYTES_TEXT_MAX];
    begin(s, "compare");
    int r = dir_open(s->work_dir, "bucket", &bucket, err);
    if (r == 0)
        r = dir_open(AT_FDCWD, s->volume.target, &mounted, err);
    if (r == 0)
        r = demo_data_compare(bucket, mounted, &files, &bytes, err);
    if (r < 0)
        return r;
    step_done(s, "%" PRIu64 " files, %s: all bytes in the mount equal the bucket's", files, bytes_text(bytes, size));
    return 0;
}

static int release(struct story *s, struct err *err)
{
    begin(s, "unpublish");
    int r = demo_volume_unpublish(s->driver, &s->volume, err);
    if (r < 0)
        return r;
    step_done(s, "NodeUnpublishVolume, NodeUnstageVolume");
    begin(s, "delete");
    r = demo_volume_delete(s->driver, &s->volume, go_on, err);
    if (r < 0)
        return r;
    step_done(s, "DeleteVolume: OK after the bucket had confirmed every checkpoint");
    return 0;
}

static int verify_export(struct story *s, struct err *err)
{
    auto_fd exported = -1;
    uint64_t total = 0;
    begin(s, "exported");
    int r = dir_open(s->work_dir, "exported", &exported, err);
    for (size_t i = 0; r == 0 && i < s->checkpoint_count; i++) {
        const struct checkpoint *c = &s->checkpoints[i];
        struct digest sum;
        uint64_t bytes;
        auto_sbuf hex = SBUF(64);
        r = demo_file_sum(exported, c->path, &bytes, &sum, err);
        if (r < 0)
            return r;
        digest_add_hex(&sum, &hex);
        if (bytes != c->bytes || strcmp(hex.ptr, c->sum) != 0)
            return err_set(err, ERR_CORRUPT, "the exported '%s' differs from the trainer's file", c->path);
        total += bytes;
    }
    char size[BYTES_TEXT_MAX];
    if (r == 0)
        step_done(s, "%zu checkpoint files, %s in %s: all bytes equal the trainer's", s->checkpoint_count,
                  bytes_text(total, size), s->export_uri);
    return r;
}

static bool keep_asking(const char *)
{
    return true;
}

/* After an error or an interrupt: releases the volume as far as the driver allows. */
static void abandon(struct story *s)
{
    if (!s->driver || !s->volume.id[0])
        return;
    if (demo_volume_unpublish(s->driver, &s->volume, ERR_IGNORED) == 0)
        (void)!demo_volume_delete(s->driver, &s->volume, keep_asking, ERR_IGNORED);
}

static int clean_up(struct story *s, struct err *err)
{
    demo_driver_free(s->driver);
    s->driver = NULL;
    if (s->keep) {
        printf("  %-10s %s\n", "kept", s->work);
        return 0;
    }
    int r = s->work_dir >= 0 ? dir_remove(AT_FDCWD, s->work, err) : 0;
    if (r < 0)
        err_advise(err, CIS_DEMO_LEFTOVERS, s->work);
    return r;
}

static int play(struct story *s, struct err *err)
{
    static int (*const steps[])(struct story *, struct err *) = {make_work, make_bucket, create,  publish,
                                                                 train,     verify_data, release, verify_export};
    for (size_t i = 0; i < countof(steps); i++) {
        if (interrupted)
            return err_set(err, ERR_CANCELLED, "interrupted");
        int r = steps[i](s, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static const char usage[] =
    "Usage: cistern demo [flags]\n"
    "\n"
    "Runs a volume through its whole life by CSI calls: hydrates a bucket, mounts it, trains on it while the mount\n"
    "process is killed, exports the checkpoints and deletes the volume. Compares every byte in both directions. Needs\n"
    "root; removes everything that it made.\n\n"
    "  cistern demo\n"
    "  cistern demo --source s3://bucket/dataset/\n\nFlags:\n";

static int preflight(struct err *err)
{
    if (geteuid() != 0)
        return err_fail(err, ERR_DENIED, CIS_DEMO_NEEDS_ROOT,
                        "the demo mounts file systems and makes loop devices: run it as root");
    if (access("/dev/fuse", R_OK | W_OK) != 0) {
        err_sys(err, errno, "cannot use '/dev/fuse'");
        return err_advise(err, CIS_DEMO_NO_FUSE);
    }
    return 0;
}

static int fail(const struct err *err, int status)
{
    exit_with(err, false);
    return status;
}

static int run(struct story *s)
{
    struct err err, cleaning;
    char took[TIME_TEXT_MAX];
    pthread_t reporter;
    uint64_t began_ns = clock_now_ns();
    s->step_began_ns = began_ns;
    (void)!thread_start_named(&reporter, "report", report_time, s, ERR_IGNORED); /* only for people */
    printf("cistern demo: the life of a volume, from bucket to bucket\n");
    int r = play(s, &err);
    if (r < 0) {
        printf("\n");
        abandon(s);
    }
    int cleaned = clean_up(s, &cleaning);
    if (r < 0)
        fail(&err, EXIT_SOME_FAILED);
    if (cleaned < 0)
        fail(&cleaning, EXIT_SOME_FAILED);
    if (r < 0 || cleaned < 0)
        return EXIT_SOME_FAILED;
    printf("Demo passed in %s; everything was removed.\n", duration_text(clock_now_ns() - began_ns, took));
    return EXIT_DONE;
}

static int help(const struct opt *table)
{
    auto_sbuf b = SBUF(16384);
    sbuf_adds(&b, usage);
    opt_help(table, &b);
    fputs(b.ptr, stdout);
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    static struct story s = {.work_dir = -1, .data = {.small_count = 4000, .large_count = 2}};
    uint64_t large_bytes = UINT64_C(512) << 20;
    const char *train_dir = NULL;
    bool wants_help = false;
    struct err err;
    const struct opt table[] = {
        {"source", 0, OPT_TEXT, &s.source, "URI", "hydrate from URI (a generated bucket)"},
        {"objects", 0, OPT_U64, &s.data.small_count, "N", "generate N small objects (4000)"},
        {"size", 0, OPT_BYTES, &large_bytes, "BYTES", "generate two large objects of this size together (512Mi)"},
        {"keep", 0, OPT_FLAG, &s.keep, NULL, "keep the directory with the bucket, the exported files and the log"},
        {"train", 0, OPT_TEXT, &train_dir, "DIR", "run as the trainer (internal)"},
        {"help", 'h', OPT_FLAG, &wants_help, NULL, "print this help"},
        {0},
    };
    if (opt_parse(table, NULL, false, &argc, argv, &err) < 0)
        return fail(&err, EXIT_USAGE);
    if (wants_help)
        return help(table);
    if (argc > 1) {
        err_set(&err, ERR_INVALID, "unexpected argument '%s'; see `cistern demo --help`", argv[1]);
        return fail(&err, EXIT_USAGE);
    }
    if (train_dir)
        return demo_train(train_dir);
    if (preflight(&err) < 0)
        return fail(&err, EXIT_ENVIRONMENT);
    s.data.large_bytes = large_bytes / s.data.large_count;
    signal(SIGPIPE, SIG_IGN); /* a closed pipe must not leave mounts behind */
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    if (signal(SIGHUP, SIG_IGN) != SIG_IGN) /* not with nohup */
        signal(SIGHUP, interrupt);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the mounts, the driver and the loop device would stay */
    return run(&s);
}
