/* SPDX-License-Identifier: Apache-2.0 */
/* pool_disk.h - pools for the tests of pool.h: on a small file system of their own, so that they can be full. */
#pragma once

#include "place.h"
#include "pool/pool.h"
#include <sys/statvfs.h>

enum { MIB = 1 << 20 };

struct pool_at {
    char host[PATH_MAX];
    char path[PATH_MAX];
    int dir;
    struct disk disk;
};

/* A file system of `bytes` at <place>/<name>/data: a pool's disk. */
static inline void make_pool_disk(struct pool_at *p, const char *name, uint64_t bytes)
{
    snprintf(p->host, sizeof p->host, "%s", at(name));
    assert_int_equal(mkdir(p->host, 0755), 0);
    p->dir = open(p->host, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p->disk = (struct disk){.backend = BACKEND_LOOP, .dir = p->dir, .path = p->host, .capacity_bytes = bytes};
    must(disk_make(&p->disk, &err));
    must(disk_attach(&p->disk, &err));
    snprintf(p->path, sizeof p->path, "%s/data", at(name));
}

static inline void drop_pool_disk(struct pool_at *p)
{
    must(disk_detach(&p->disk, &err));
    must(disk_release(&p->disk, &err));
    must(dir_remove(AT_FDCWD, p->host, &err));
    close(p->dir);
}

static inline struct pool_options options(const char *path)
{
    return (struct pool_options){.path = path, .name = "default", .node = "node-1", .reserve_percent = 0};
}

/* As the only one who knows what was there before: nothing was. */
static inline int try_pool(const struct pool_options *o, struct pool **ret, struct err *e)
{
    static const struct pool_witness nothing;
    auto_pool p = NULL;
    int r = pool_new(o, &p, e);
    if (r == 0)
        r = pool_open(p, &nothing, e);
    if (r == 0)
        *ret = take(&p);
    return r;
}

static inline struct pool *open_pool(const char *path)
{
    struct pool_options o = options(path);
    struct pool *p = NULL;
    must(try_pool(&o, &p, &err));
    return p;
}

static inline struct spec *wanted(const char *name, uint64_t bytes)
{
    struct spec *s = spec_new();
    s->name = str_dup(str_of(name));
    s->capacity_bytes = bytes;
    return s;
}

static inline struct volume *create(struct pool *p, const char *name, uint64_t bytes)
{
    auto_spec want = wanted(name, bytes);
    struct volume *v = NULL;
    must(pool_create_volume(p, want, 0, &v, &err));
    return v;
}

/* Deletes what create() made, at once and for good. */
static inline void erase(struct pool *p, const struct volume *v)
{
    must(pool_delete_volume(p, &v->spec->id, &err));
    must(pool_empty_trash(p, &err));
}

/* Made and erased, one after the other; in the end no byte of the pool is reserved. */
static inline void many_come_and_go(struct pool *p, unsigned count)
{
    struct pool_usage u;
    for (unsigned i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "pvc-%u", i);
        auto_volume v = create(p, name, 16 * MIB);
        erase(p, v);
    }
    must(pool_usage(p, &u, &err));
    assert_int_equal(u.volumes, 0);
    assert_int_equal(u.allocated_bytes, 0);
}

static inline uint64_t free_bytes(const char *path)
{
    struct statvfs fs;
    assert_int_equal(statvfs(path, &fs), 0);
    return fs.f_bfree * fs.f_frsize;
}

/* Writes until it hurts or `most` are written. */
static inline uint64_t fill(const struct volume *v, uint64_t most, int *ret_errno)
{
    static const char chunk[MIB];
    uint64_t written = 0;
    int data = -1;
    must(volume_data(v, &data, &err));
    auto_fd fd = openat(data, "fill", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    close(data);
    assert_true(fd >= 0);
    *ret_errno = 0;
    while (written < most) {
        ssize_t n = write(fd, chunk, sizeof chunk);
        if (n < 0) {
            *ret_errno = errno;
            return written;
        }
        written += (uint64_t)n;
    }
    if (fsync(fd) != 0)
        *ret_errno = errno;
    return written;
}
