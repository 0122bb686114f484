/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/local_disks.h"
#include "util/file.h"
#include "util/glob.h"
#include "util/hash.h"
#include <fcntl.h>
#include <stdio.h>

/* ---- /sys -------------------------------------------------------------------------------------------------------- */

static void read_text(int dir, const char *name, char *ret, size_t size)
{
    auto_mem char *text = NULL;
    size_t len = 0;
    ret[0] = '\0';
    if (file_read(dir, name, 4096, &text, &len, ERR_IGNORED) == 0)
        snprintf(ret, size, "%.*s", STR_FMT(str_trim((struct str){text, len})));
}

static uint64_t read_number(int dir, const char *name)
{
    char text[LOCAL_DISK_TEXT_MAX];
    uint64_t n = 0;
    read_text(dir, name, text, sizeof text);
    return str_to_u64(str_of(text), &n, ERR_IGNORED) == 0 ? n : 0;
}

/* Calls `each` for every entry but the two dots; for none if the directory does not exist. */
static void each_entry(int dir, const char *name, void (*each)(int dir, const char *name, void *ctx), void *ctx)
{
    auto_dir d = dir_stream(openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *e;
    while (d && (e = dir_next(d)) != NULL)
        each(dirfd(d), e->d_name, ctx);
}

static void note_partition(int dir, const char *name, void *ctx)
{
    struct local_disk *d = ctx;
    char path[sizeof "/partition" + 256];
    snprintf(path, sizeof path, "%.255s/partition", name);
    d->has_partitions |= faccessat(dir, path, F_OK, 0) == 0;
}

static void note_holder(int, const char *name, void *ctx)
{
    struct local_disk *d = ctx;
    snprintf(d->holder, sizeof d->holder, "%.*s", (int)sizeof d->holder - 1, name);
}

struct scan {
    struct local_disk *disks;
    size_t count;
};

static void note_disk(int dir, const char *name, void *ctx)
{
    struct scan *s = ctx;
    auto_fd fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (strncmp(name, "nvme", 4) != 0 || strlen(name) >= LOCAL_DISK_NAME_MAX || fd < 0)
        return;
    if (s->count++ >= LOCAL_DISKS_MAX)
        return;
    struct local_disk *d = &s->disks[s->count - 1];
    *d = (struct local_disk){.bytes = read_number(fd, "size") * 512, .read_only = read_number(fd, "ro") != 0};
    snprintf(d->name, sizeof d->name, "%s", name);
    read_text(fd, "device/model", d->model, sizeof d->model);
    read_text(fd, "device/serial", d->serial, sizeof d->serial);
    each_entry(fd, ".", note_partition, d);
    each_entry(fd, "holders", note_holder, d);
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(((const struct local_disk *)a)->name, ((const struct local_disk *)b)->name);
}

int local_disks_scan(const char *sys, struct local_disk ret[LOCAL_DISKS_MAX], size_t *ret_count, struct err *err)
{
    struct scan s = {.disks = ret};
    auto_fd fd = open(sys, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot open '%s'", sys);
    each_entry(fd, "block", note_disk, &s);
    if (s.count > LOCAL_DISKS_MAX)
        return err_set(err, ERR_NO_SPACE, "%zu NVMe disks were found, the maximum is %d", s.count, LOCAL_DISKS_MAX);
    qsort(ret, s.count, sizeof *ret, by_name);
    *ret_count = s.count;
    return 0;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static bool matches(const char *const *patterns, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (glob_match(str_of(patterns[i]), str_of(text)))
            return true;
    return false;
}

bool local_disks_match(const struct local_disks_wanted *w, const struct local_disk *d)
{
    return matches(w->models, w->model_count, d->model) || matches(w->names, w->name_count, d->name);
}

/* An array's name has at most 32 bytes, a pool's 63: a long pool name is replaced by its hash. */
void local_disks_array_name(const char *pool, char ret[SIGNATURE_NAME_MAX])
{
    uint8_t digest[32];
    if (strlen("cistern-") + strlen(pool) < SIGNATURE_NAME_MAX) {
        snprintf(ret, SIGNATURE_NAME_MAX, "cistern-%s", pool);
        return;
    }
    sha256(str_of(pool), digest);
    char hex[25];
    snprintf(ret, SIGNATURE_NAME_MAX, "cistern-%s", hex_text(digest, 12, hex));
}

static bool is_ours(const struct local_disk *d, const char *array)
{
    return d->signature.kind == SIGNATURE_MEMBER && d->signature.level == 0 &&
           strcmp(d->signature.set_name, array) == 0;
}

static int check_free(const struct local_disks_wanted *w, const struct local_disk *d, struct err *err)
{
    const char *why = d->read_only ? "it is read-only" : d->has_partitions ? "it has partitions" : NULL;
    bool may_wipe = d->serial[0] && str_is_one_of(str_of(d->serial), w->wipe, w->wipe_count);
    if (d->holder[0])
        err_set(err, ERR_EXISTS, "the disk '%s' (%s) is in use by '%s'", d->name, d->model, d->holder);
    else if (why)
        err_set(err, ERR_EXISTS, "the disk '%s' (%s) cannot be used: %s", d->name, d->model, why);
    else if (d->signature.kind != SIGNATURE_BLANK && !may_wipe)
        err_set(err, ERR_EXISTS, "the disk '%s' (%s, serial %s) is not blank: it has %s", d->name, d->model, d->serial,
                d->signature.what);
    else
        return 0;
    return err_advise(err, CIS_DISK_NOT_BLANK);
}

static int plan_ours(struct local_disks_plan *p, struct err *err)
{
    const struct signature *first = &p->members[0]->signature;
    bool same = true, running = true;
    for (size_t i = 0; i < p->count; i++) {
        same = same && strcmp(p->members[i]->signature.set_uuid, first->set_uuid) == 0;
        running = running && strncmp(p->members[i]->holder, "md", 2) == 0 &&
                  strcmp(p->members[i]->holder, p->members[0]->holder) == 0;
    }
    if (!same || p->count != first->raid_disks)
        return err_fail(err, ERR_CORRUPT, CIS_ARRAY_DISK_MISSING, "%zu disks of its array were found, but it has %u",
                        p->count, first->raid_disks);
    p->step = running ? LOCAL_DISKS_RUNNING : LOCAL_DISKS_ASSEMBLE;
    if (running)
        memcpy(p->array, p->members[0]->holder, sizeof p->array);
    return 0;
}

int local_disks_plan(const struct local_disks_wanted *w, const struct local_disk *disks, size_t count,
                     struct local_disks_plan *ret, struct err *err)
{
    char array[SIGNATURE_NAME_MAX];
    struct local_disks_plan ours = {0}, all = {.step = LOCAL_DISKS_CREATE};
    local_disks_array_name(w->pool, array);
    for (size_t i = 0; i < count; i++) {
        if (!local_disks_match(w, &disks[i]))
            continue;
        all.members[all.count++] = &disks[i];
        if (is_ours(&disks[i], array))
            ours.members[ours.count++] = &disks[i];
    }
    if (all.count == 0)
        return err_fail(err, ERR_NOT_FOUND, CIS_NO_DISK,
                        "none of the %zu NVMe disks of this node matches the devices of the pool", count);
    int r = ours.count > 0 ? plan_ours(&ours, err) : 0;
    for (size_t i = 0; r == 0 && ours.count == 0 && i < all.count; i++)
        r = check_free(w, all.members[i], err);
    if (r == 0)
        *ret = ours.count > 0 ? ours : all;
    return r;
}
