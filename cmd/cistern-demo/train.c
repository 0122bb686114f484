/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop as the file system sees it: many opens, whole reads, mappings, and checkpoint directories with
 * metrics beside the model. */
#include "demo.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { CHECKPOINT_BYTES = 24 << 20, FILES_MAX = 1000000 };
static const uint64_t checkpoint_every_ns = NS_PER_SECOND;

static volatile sig_atomic_t stopping;

static struct {
    char **paths; /* owned; relative to the directory */
    size_t count;
    size_t skip; /* length of the directory's name */
} files;

struct train_counts {
    uint64_t reads, bytes, errors;
    uint64_t step;
    uint32_t model; /* "learned": a checksum of all bytes read, so that the compiler cannot remove a read */
};

static void stop(int)
{
    stopping = 1;
}

static int remember(const char *path, const struct stat *, int type, struct FTW *)
{
    if (type != FTW_F || strncmp(path + files.skip, "ckpt/", 5) == 0)
        return 0;
    if (files.count == FILES_MAX)
        return -1;
    files.paths = xrealloc(files.paths, files.count + 1, sizeof *files.paths);
    files.paths[files.count++] = str_dup(str_of(path + files.skip));
    return 0;
}

/* One sample: half of them by read(2), half through a mapping, as data loaders do. */
static void learn(int dir, const char *path, struct train_counts *t)
{
    struct err err;
    struct digest sum = {0};
    uint64_t bytes = 0;
    if (t->reads++ % 2 == 0) {
        if (demo_file_sum(dir, path, &bytes, &sum, &err) < 0) {
            t->errors++;
            printf("error %s\n", err.text);
        }
    } else {
        auto_fd fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) != 0) {
            t->errors++;
            printf("error cannot open '%s'\n", path);
            return;
        }
        bytes = (uint64_t)st.st_size;
        void *map = bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
        if (map == MAP_FAILED) {
            t->errors++;
            printf("error cannot map '%s'\n", path);
            return;
        }
        for (uint64_t i = 0; map && i < bytes; i += 4096)
            sum.bytes[0] ^= ((const uint8_t *)map)[i];
        if (map)
            munmap(map, bytes);
    }
    t->bytes += bytes;
    t->model = (t->model << 5 | t->model >> 27) ^ sum.bytes[0];
}

static int checkpoint_file(int dir, const char *path, const void *bytes, size_t len, struct err *err)
{
    auto_fd fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, errno, "cannot create '%s'", path);
    int r = file_write_all(fd, path, bytes, len, err);
    if (r < 0)
        return r;
    if (fsync(fd) != 0)
        return err_sys(err, errno, "cannot flush '%s'", path);
    struct digest sum = digest_of(HASH_CRC32C, (struct str){bytes, len});
    auto_sbuf text = SBUF(64);
    digest_add_hex(&sum, &text);
    printf("checkpoint %s %zu %s\n", path, len, text.ptr);
    return 0;
}

static int checkpoint(int dir, struct train_counts *t, struct err *err)
{
    char path[64], metrics[256];
    t->step += 100;
    if (mkdirat(dir, "ckpt", 0755) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make the directory 'ckpt'");
    snprintf(path, sizeof path, "ckpt/step-%05" PRIu64, t->step);
    if (mkdirat(dir, path, 0755) != 0)
        return err_sys(err, errno, "cannot make the directory '%s'", path);
    auto_mem uint32_t *model = xcalloc(CHECKPOINT_BYTES, 1);
    for (size_t i = 0; i < CHECKPOINT_BYTES / sizeof *model; i++)
        model[i] = t->model + (uint32_t)i * 2654435761U;
    snprintf(path, sizeof path, "ckpt/step-%05" PRIu64 "/model.bin", t->step);
    int r = checkpoint_file(dir, path, model, CHECKPOINT_BYTES, err);
    if (r < 0)
        return r;
    int len =
        snprintf(metrics, sizeof metrics, "{\"step\": %" PRIu64 ", \"eval_loss\": %.4f, \"bytes_read\": %" PRIu64 "}\n",
                 t->step, 4.0 / (1.0 + (double)t->step / 100), t->bytes);
    snprintf(path, sizeof path, "ckpt/step-%05" PRIu64 "/metrics.json", t->step);
    return checkpoint_file(dir, path, metrics, (size_t)len, err);
}

int demo_train(const char *dir_name)
{
    struct err err;
    auto_fd dir = -1;
    struct train_counts t = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, stop);
    files.skip = strlen(dir_name) + 1;
    if (dir_open(AT_FDCWD, dir_name, &dir, &err) < 0 || nftw(dir_name, remember, 64, FTW_PHYS) != 0 || !files.count) {
        printf("error cannot list '%s'\n", dir_name);
        return 1;
    }
    printf("started %zu\n", files.count);
    for (uint64_t next = clock_now_ns() + checkpoint_every_ns; !stopping;) {
        learn(dir, files.paths[clock_random() % files.count], &t);
        if (clock_now_ns() < next)
            continue;
        if (checkpoint(dir, &t, &err) < 0) {
            t.errors++;
            printf("error %s\n", err.text);
        }
        next = clock_now_ns() + checkpoint_every_ns;
    }
    printf("stopped %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", t.reads, t.bytes, t.errors);
    return t.errors ? 1 : 0;
}
