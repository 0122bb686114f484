/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - One volume's directory, opened by path, as hydrate, export and mount use it. home: the caller that
 * opened it. Nothing here takes the pool's lock; the functions of pool.h do. */
#pragma once

#include "spec/spec.h"

/* Files in a volume's directory. Each is written by one room, named here; the others only read it. Hydration adds
 * those of catalog/index.h, catalog/journal.h and hydrate/status.h. */
#define VOLUME_SPEC "volume.json" /* pool */
#define VOLUME_DATA "data"        /* pool: the files that the pod sees */
#define VOLUME_IMAGE "data.img"   /* pool: the file system of the loop backend */
#define VOLUME_EXPORT "export"    /* export: a directory for uploads in progress and verdicts */

struct volume {
    char *path;        /* owned; <pool>/volumes/<id> */
    int dir;           /* owned; the directory */
    struct spec *spec; /* owned; volume.json at the time of opening */
};

/* Reads volume.json in `dir`, which is at `path`. Errors as volume_open(). */
must_check int volume_spec_read(int dir, const char *path, struct spec **ret, struct err *err);

/* Opens a directory that has a volume.json. ERR_NOT_FOUND if it has none; CORRUPT or UNSUPPORTED as spec_from_json. */
must_check int volume_open(const char *path, struct volume **ret, struct err *err);
void volume_close(struct volume *own_v);
DEFINE_AUTO(volume, struct volume, volume_close)
#define auto_volume auto_with(auto_clean_volume) struct volume *

/* A descriptor of data/, for the caller to close. ERR_BUSY (CIS_VOLUME_NOT_ATTACHED) for a bare mount point, where the
 * loop backend's image is not mounted: a file there would be outside of the volume. */
must_check int volume_data(const struct volume *v, int *ret_fd, struct err *err);

/* ERR_BUSY (CIS_VOLUME_COVERED) if a file system is mounted on or below data/: it hides files of the volume. */
must_check int volume_check_uncovered(const struct volume *v, struct err *err);

/* "<path>/data"; the caller frees. */
char *volume_data_path(const struct volume *v);

struct volume_usage {
    uint64_t total_bytes, used_bytes, available_bytes;
    uint64_t total_inodes, used_inodes, available_inodes;
};
/* Is so little space left that a writer may get ENOSPC? */
bool volume_usage_is_full(const struct volume_usage *u);

/* Reads size and free space as a writer sees them: the volume's own limits, not the disk's. ERR_BUSY
 * (CIS_VOLUME_NOT_ATTACHED) if not attached. */
must_check int volume_usage(const struct volume *v, struct volume_usage *ret, struct err *err);
