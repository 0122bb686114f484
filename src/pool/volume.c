/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/volume.h"
#include "pool/disk.h"
#include "pool/mount.h"
#include "util/file.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

int volume_spec_read(int dir, const char *path, struct spec **ret, struct err *err)
{
    auto_mem char *text = NULL;
    char what[PATH_MAX + 16];
    size_t len;
    int r = file_read_state(dir, VOLUME_SPEC, SPEC_JSON_MAX, &text, &len, err);
    snprintf(what, sizeof what, "'%s/%s'", path, VOLUME_SPEC);
    return r < 0 ? err_wrap(err, "'%s' is not a volume", path)
                 : spec_from_json((struct str){text, len}, what, ret, err);
}

int volume_open(const char *path, struct volume **ret, struct err *err)
{
    auto_volume v = xcalloc(1, sizeof *v);
    v->dir = -1;
    int r = dir_open(AT_FDCWD, path, &v->dir, err);
    if (r < 0)
        return r;
    v->path = realpath(path, NULL);
    if (!v->path)
        return err_sys(err, errno, "cannot look up '%s'", path);
    r = volume_spec_read(v->dir, path, &v->spec, err);
    if (r < 0)
        return r;
    *ret = take(&v);
    return 0;
}

void volume_close(struct volume *own_v)
{
    if (!own_v)
        return;
    fd_close(&own_v->dir);
    spec_free(own_v->spec);
    free(own_v->path);
    free(own_v);
}

char *volume_data_path(const struct volume *v)
{
    return str_dupf("%s/%s", v->path, VOLUME_DATA);
}

/* Asks the opened directory, not mountinfo: a stage may unmount the image to set its label, at any moment. */
static int check_attached(const struct volume *v, int data, struct err *err)
{
    struct statx at;
    if (v->spec->backend != BACKEND_LOOP)
        return 0;
    if (statx(data, "", AT_EMPTY_PATH, 0, &at) != 0)
        return err_sys(err, errno, "cannot stat '%s/" VOLUME_DATA "'", v->path);
    if (at.stx_attributes & STATX_ATTR_MOUNT_ROOT)
        return 0;
    return err_fail(err, ERR_BUSY, CIS_VOLUME_NOT_ATTACHED,
                    "the volume '%s' is not attached: nothing is mounted on '%s/" VOLUME_DATA "'", v->spec->id.text,
                    v->path);
}

int volume_data(const struct volume *v, int *ret_fd, struct err *err)
{
    auto_fd data = -1;
    int r = dir_open(v->dir, VOLUME_DATA, &data, err);
    if (r == 0)
        r = check_attached(v, data, err);
    if (r == 0)
        *ret_fd = take_fd(&data);
    return r;
}

int volume_check_uncovered(const struct volume *v, struct err *err)
{
    auto_mem char *path = volume_data_path(v);
    struct mount *all = NULL;
    size_t count = 0, own = v->spec->backend == BACKEND_LOOP ? 1 : 0;
    int r = mount_below(path, &all, &count, err);
    if (r == 0 && (count > own || (count == 1 && strcmp(all[0].fs_type, "xfs") != 0)))
        r = err_fail(err, ERR_BUSY, CIS_VOLUME_COVERED, "'%s' is mounted on '%s', and hides the files of volume '%s'",
                     all[0].source, all[0].target, v->spec->id.text);
    mount_list_free(all, count);
    return r;
}

int volume_usage(const struct volume *v, struct volume_usage *ret, struct err *err)
{
    auto_fd data = -1;
    struct statvfs fs;
    int r = volume_data(v, &data, err);
    if (r < 0)
        return r;
    /* For a directory with a project quota, XFS and ext4 report the quota as the size of the file system. */
    if (fstatvfs(data, &fs) != 0)
        return err_sys(err, errno, "cannot read the usage of '%s'", v->spec->id.text);
    *ret = (struct volume_usage){
        .total_bytes = fs.f_blocks * fs.f_frsize,
        .used_bytes = (fs.f_blocks - fs.f_bfree) * fs.f_frsize,
        .available_bytes = fs.f_bavail * fs.f_frsize,
        .total_inodes = fs.f_files,
        .used_inodes = fs.f_files - fs.f_ffree,
        .available_inodes = fs.f_favail,
    };
    return 0;
}

/* A file system says ENOSPC before its last block is gone. */
bool volume_usage_is_full(const struct volume_usage *u)
{
    return u->total_bytes > 0 && u->available_bytes < max_u64(u->total_bytes / 100, 1 << 20);
}
