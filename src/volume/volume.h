/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - one volume's folder, opened by path: what hydrate, export and mount work on.
 * home: whoever opened it. Nothing here takes the pool's lock: see space.h for what does. */
#pragma once

#include "volume/spec.h"

/* Files in a volume's folder. A file belongs to who is named; the others only read it. Hydration adds those of
 * catalog/index.h, catalog/journal.h and hydrate/status.h. */
#define VOLUME_SPEC "volume.json" /* ours */
#define VOLUME_DATA "data"        /* ours: what the pod sees */
#define VOLUME_IMAGE "data.img"   /* ours: the loop backend's file system */
#define VOLUME_EXPORT "export"    /* export: a folder for uploads in progress and verdicts */

struct volume {
    char *path;        /* owned; <pool>/volumes/<id> */
    int dir;           /* owned; the folder */
    struct spec *spec; /* owned; as volume.json said when it was opened */
};

/* Opens a folder that holds volume.json. ERR_NOT_FOUND if it does not; CORRUPT or UNSUPPORTED as spec_from_json. */
must_check int volume_open(const char *path, struct volume **ret, struct err *err);
void volume_close(struct volume *own_v);
DEFINE_AUTO(volume, struct volume, volume_close)
#define auto_volume auto_with(auto_clean_volume) struct volume *

/* A descriptor of data/, for the caller to close. A bare mount point (the loop backend's image is not mounted) is
 * ERR_BUSY (CIS2010), so that nobody ever writes beside the volume. */
must_check int volume_data(const struct volume *v, int *ret_fd, struct err *err);

/* ERR_BUSY (CIS2011) if something else is mounted on data/ or below it: who reads all files would not see those that it
 * hides. */
must_check int volume_check_uncovered(const struct volume *v, struct err *err);

/* "<path>/data"; the caller frees. */
char *volume_data_path(const struct volume *v);

struct volume_usage {
    uint64_t total_bytes, used_bytes, available_bytes;
    uint64_t total_inodes, used_inodes, available_inodes;
};
/* Is so little left that a writer may get ENOSPC? */
bool volume_usage_is_full(const struct volume_usage *u);

/* As a writer would see them: the volume's own limits, not the disk's. ERR_BUSY (CIS2010) if not attached. */
must_check int volume_usage(const struct volume *v, struct volume_usage *ret, struct err *err);
