/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/raid.h"
#include "pool/mount.h"
#include "tool.h"
#include "util/log.h"
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { ARGS_MAX = LOCAL_DISKS_MAX + 16, DEVICE_MAX = LOCAL_DISK_NAME_MAX + 8 };

static void device_of(const char *name, char ret[DEVICE_MAX])
{
    snprintf(ret, DEVICE_MAX, "/dev/%s", name);
}

static int read_disks(const struct local_disks_wanted *w, struct local_disk disks[LOCAL_DISKS_MAX],
                      struct local_disks_plan *ret, struct err *err)
{
    size_t count;
    int r = local_disks_scan("/sys", disks, &count, err);
    for (size_t i = 0; r == 0 && i < count; i++) {
        char device[DEVICE_MAX];
        if (!local_disks_match(w, &disks[i]))
            continue;
        device_of(disks[i].name, device);
        r = signature_of_device(device, &disks[i].signature, err);
    }
    return r < 0 ? r : local_disks_plan(w, disks, count, ret, err);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Wipes the whole disk, so that none of its content appears in the array. Only for a disk whose serial was given. */
static int wipe(const struct local_disk *d, struct err *err)
{
    char device[DEVICE_MAX];
    device_of(d->name, device);
    log_event(LOG_WARN, "a disk is wiped, because its serial was given", "disk", device, "serial", d->serial, "content",
              d->signature.what, NULL);
    const char *const argv[] = {"wipefs", "--all", "--quiet", device, NULL};
    return tool_run(argv, err);
}

static int run_mdadm(const struct local_disks_wanted *w, const struct local_disks_plan *p, struct err *err)
{
    char array[SIGNATURE_NAME_MAX], path[64], name[64], disks[32], devices[LOCAL_DISKS_MAX][DEVICE_MAX];
    const char *argv[ARGS_MAX] = {"mdadm"};
    size_t n = 1;
    local_disks_array_name(w->pool, array);
    snprintf(path, sizeof path, "/dev/md/%s", array);
    snprintf(name, sizeof name, "--name=%s", array);
    snprintf(disks, sizeof disks, "--raid-devices=%zu", p->count);
    bool create = p->step == LOCAL_DISKS_CREATE;
    argv[n++] = create ? "--create" : "--assemble";
    argv[n++] = path;
    argv[n++] = "--run";
    if (create) {
        /* --force allows an array of one disk; the disks were checked above. */
        static const char *const more[] = {"--force", "--level=0", "--metadata=1.2", "--homehost=any"};
        for (size_t i = 0; i < countof(more); i++)
            argv[n++] = more[i];
        argv[n++] = name;
        argv[n++] = disks;
    }
    for (size_t i = 0; i < p->count; i++) {
        device_of(p->members[i]->name, devices[i]);
        argv[n++] = devices[i];
    }
    return tool_run(argv, err);
}

static int bring_up(const struct local_disks_wanted *w, const struct local_disks_plan *p, struct err *err)
{
    for (size_t i = 0; p->step == LOCAL_DISKS_CREATE && i < p->count; i++) {
        int r = p->members[i]->signature.kind == SIGNATURE_BLANK ? 0 : wipe(p->members[i], err);
        if (r < 0)
            return r;
    }
    log_event(LOG_INFO, p->step == LOCAL_DISKS_CREATE ? "an array is made" : "an array is assembled", "pool", w->pool,
              "disks", log_u64(p->count), NULL);
    return run_mdadm(w, p, err);
}

/* ---- the file system --------------------------------------------------------------------------------------------- */

/* nrext64 off: kernels before 5.19 cannot mount a file system that has it. */
static int make_xfs(const struct local_disks_wanted *w, const char *device, bool overwrite, struct err *err)
{
    const char *const argv[] = {"mkfs.xfs", "-q", "-K", "-i", "nrext64=0", device, overwrite ? "-f" : NULL, NULL};
    log_event(LOG_INFO, "a file system is made", "pool", w->pool, "device", device, NULL);
    return tool_run(argv, err);
}

/* A new array has no content. An existing array is formatted only if it is blank, after a crash between the two
 * steps. Any other content may be our own, damaged. */
static int ensure_xfs(const struct local_disks_wanted *w, const char *device, bool is_new, struct err *err)
{
    struct signature s;
    int r = signature_of_device(device, &s, err);
    if (r < 0 || (s.kind == SIGNATURE_XFS && !is_new))
        return r;
    if (s.kind != SIGNATURE_BLANK && !is_new)
        return err_fail(err, ERR_EXISTS, CIS_ARRAY_NOT_XFS, "its array '%s' has %s instead of an XFS", device, s.what);
    return make_xfs(w, device, is_new, err);
}

static int mount_device(const char *device, const char *path, struct err *err)
{
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return err_sys(err, errno, "cannot make the directory '%s'", path);
    return mount_make(device, path, "xfs", MS_NOATIME, "prjquota", err);
}

static int is_mounted(const char *device, const char *path, bool *ret, struct err *err)
{
    struct stat st;
    struct mount m;
    int r = mount_find(path, &m, ret, err);
    if (r < 0 || !*ret)
        return r;
    /* By its number: a device has several names. */
    bool same = stat(device, &st) == 0 && st.st_rdev == makedev(m.dev_major, m.dev_minor);
    mount_done(&m);
    return same ? 0 : err_set(err, ERR_EXISTS, "another file system than '%s' is mounted at '%s'", device, path);
}

static int ensure_mounted(const char *device, const char *path, struct err *err)
{
    bool mounted;
    int r = is_mounted(device, path, &mounted, err);
    return r == 0 && !mounted ? mount_device(device, path, err) : r;
}

/* ---- one disk ---------------------------------------------------------------------------------------------------- */

/* Only a blank disk is formatted: mkfs.xfs itself refuses one that is in use. */
static int ensure_formatted(const struct local_disks_wanted *w, struct err *err)
{
    struct signature s;
    struct stat st;
    if (stat(w->device, &st) != 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, CIS_NO_DISK, "the disk '%s' is missing", w->device);
    int r = signature_of_device(w->device, &s, err);
    if (r < 0 || s.kind == SIGNATURE_XFS)
        return r;
    if (s.kind != SIGNATURE_BLANK)
        return err_fail(err, ERR_EXISTS, CIS_DISK_NOT_BLANK, "the disk '%s' is not blank: it has %s", w->device,
                        s.what);
    return make_xfs(w, w->device, false, err);
}

int device_ensure(const struct local_disks_wanted *w, const char *path, struct err *err)
{
    int r = ensure_formatted(w, err);
    if (r == 0)
        r = ensure_mounted(w->device, path, err);
    return r < 0 ? err_wrap(err, "pool '%s'", w->pool) : 0;
}

/* ---- an array ---------------------------------------------------------------------------------------------------- */

int raid_ensure(const struct local_disks_wanted *w, const char *path, struct err *err)
{
    auto_mem struct local_disk *disks = xcalloc(LOCAL_DISKS_MAX, sizeof *disks);
    struct local_disks_plan plan;
    char device[DEVICE_MAX];
    bool is_new = false;
    int r = read_disks(w, disks, &plan, err);
    if (r == 0 && plan.step != LOCAL_DISKS_RUNNING) {
        is_new = plan.step == LOCAL_DISKS_CREATE;
        r = bring_up(w, &plan, err);
        if (r == 0)
            r = read_disks(w, disks, &plan, err);
        if (r == 0 && plan.step != LOCAL_DISKS_RUNNING)
            r = err_set(err, ERR_IO, "mdadm succeeded, but the array does not run");
    }
    if (r == 0) {
        device_of(plan.array, device);
        r = ensure_xfs(w, device, is_new, err);
    }
    if (r == 0)
        r = ensure_mounted(device, path, err);
    return r < 0 ? err_wrap(err, "pool '%s'", w->pool) : 0;
}
