/* SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"
#include "util/file.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

enum { CHUNK = 1 << 20, SMALL_LEAST = 4 << 10, SMALL_MOST = 100 << 10, FILES_A_DIRECTORY = 1000 };

/* An xorshift stream (Marsaglia, 2003): neither compressible nor sparse. */
static void fill(uint64_t *words, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        words[i] = *state;
    }
}

static int make_file(int dir, const char *path, uint64_t size, uint64_t seed, uint64_t *chunk, struct err *err)
{
    auto_fd fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, errno, "cannot create '%s'", path);
    uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
    for (uint64_t done = 0; done < size; done += CHUNK) {
        size_t n = (size_t)min_u64(size - done, CHUNK);
        fill(chunk, (n + 7) / 8, &state);
        int r = file_write_all(fd, path, chunk, n, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int demo_data_make(int dir, struct demo_data *d, struct err *err)
{
    auto_mem uint64_t *chunk = xcalloc(CHUNK, 1);
    uint64_t sizes = 88172645463325252;
    char path[64];
    for (uint64_t i = 0; i < d->small_count; i++) {
        if (i % FILES_A_DIRECTORY == 0) {
            snprintf(path, sizeof path, "shard-%04" PRIu64, i / FILES_A_DIRECTORY);
            if (mkdirat(dir, path, 0755) != 0)
                return err_sys(err, errno, "cannot make the directory '%s'", path);
        }
        uint64_t random;
        fill(&random, 1, &sizes);
        uint64_t size = SMALL_LEAST + random % (SMALL_MOST - SMALL_LEAST);
        snprintf(path, sizeof path, "shard-%04" PRIu64 "/sample-%07" PRIu64 ".bin", i / FILES_A_DIRECTORY, i);
        int r = make_file(dir, path, size, i + 1, chunk, err);
        if (r < 0)
            return r;
        d->objects++;
        d->bytes += size;
    }
    for (uint64_t i = 0; i < d->large_count; i++) {
        snprintf(path, sizeof path, "weights-%05" PRIu64 ".safetensors", i);
        int r = make_file(dir, path, d->large_bytes, i + 1000003, chunk, err);
        if (r < 0)
            return r;
        d->objects++;
        d->bytes += d->large_bytes;
    }
    return 0;
}

int demo_file_sum(int dir, const char *path, uint64_t *ret_bytes, struct digest *ret, struct err *err)
{
    auto_fd fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(err, errno, "cannot open '%s'", path);
    auto_mem char *chunk = xcalloc(CHUNK, 1);
    struct hash h;
    hash_init(&h);
    hash_begin(&h, HASH_CRC32C);
    uint64_t bytes = 0;
    ssize_t n;
    while ((n = read(fd, chunk, CHUNK)) > 0) {
        hash_update(&h, chunk, (size_t)n);
        bytes += (uint64_t)n;
    }
    if (n < 0)
        return err_sys(err, errno, "cannot read '%s'", path);
    hash_end(&h, ret);
    hash_done(&h);
    *ret_bytes = bytes;
    return 0;
}

static int compare_file(int original, int copy, const char *name, uint64_t *bytes, struct err *err)
{
    uint64_t size_a, size_b;
    struct digest sum_a, sum_b;
    int r = demo_file_sum(original, name, &size_a, &sum_a, err);
    if (r < 0)
        return r;
    r = demo_file_sum(copy, name, &size_b, &sum_b, err);
    if (r < 0)
        return r;
    if (size_a != size_b || !digest_eq(&sum_a, &sum_b))
        return err_set(err, ERR_CORRUPT, "'%s' differs: %" PRIu64 " bytes against %" PRIu64, name, size_a, size_b);
    *bytes += size_a;
    return 0;
}

static int compare_entry(int original, int copy, const struct dirent *e, uint64_t *files, uint64_t *bytes,
                         struct err *err)
{
    if (e->d_type == DT_REG) {
        (*files)++;
        return compare_file(original, copy, e->d_name, bytes, err);
    }
    if (e->d_type != DT_DIR)
        return 0;
    auto_fd below_a = -1, below_b = -1;
    uint64_t files_below = 0, bytes_below = 0;
    int r = dir_open(original, e->d_name, &below_a, err);
    if (r == 0)
        r = dir_open(copy, e->d_name, &below_b, err);
    if (r == 0)
        r = demo_data_compare(below_a, below_b, &files_below, &bytes_below, err);
    *files += files_below;
    *bytes += bytes_below;
    return r < 0 ? err_wrap(err, "in '%s'", e->d_name) : 0;
}

int demo_data_compare(int original, int copy, uint64_t *ret_files, uint64_t *ret_bytes, struct err *err)
{
    auto_dir d = dir_stream(openat(original, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot read the directory to compare");
    uint64_t files = 0, bytes = 0;
    struct dirent *e;
    while ((e = dir_next(d)) != NULL) {
        int r = compare_entry(original, copy, e, &files, &bytes, err);
        if (r < 0)
            return r;
    }
    if (errno)
        return err_sys(err, errno, "cannot read the directory to compare");
    *ret_files = files;
    *ret_bytes = bytes;
    return 0;
}
