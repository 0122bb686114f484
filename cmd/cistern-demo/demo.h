/* SPDX-License-Identifier: Apache-2.0 */
/* demo.h - The parts of `cistern demo`: a data set, a trainer and a driver. home: one thread per process. */
#pragma once

#include "util/err.h"
#include "util/hash.h"
#include "util/str.h"
#include <spawn.h>

/* ---- the data set (data.c) ---------------------------------------------------------------------------------- */

struct demo_data {
    uint64_t small_count; /* of 4 to 100 KiB */
    uint64_t large_count;
    uint64_t large_bytes; /* each */
    uint64_t objects;     /* what was made */
    uint64_t bytes;
};

/* Makes the files of a bucket below `dir`: small ones in directories of a thousand, and large ones. */
must_check int demo_data_make(int dir, struct demo_data *d, struct err *err);

/* Size and CRC32C of a whole file below `dir`. */
must_check int demo_file_sum(int dir, const char *path, uint64_t *ret_bytes, struct digest *ret, struct err *err);

/* Every regular file below `original` must be below `copy` with the same bytes. Counts what it compared. */
must_check int demo_data_compare(int original, int copy, uint64_t *ret_files, uint64_t *ret_bytes, struct err *err);

/* ---- the trainer (train.c) ---------------------------------------------------------------------------------- */

/* `cistern demo --train DIR`: reads every file below DIR, over and over, until SIGTERM, and about once a second writes
 * ckpt/step-N/{model.bin,metrics.json}. It prints a line for each checkpoint file: "checkpoint PATH BYTES CRC32C". The
 * last line counts its reads, bytes and errors. Returns the exit code. */
int demo_train(const char *dir);

/* ---- the driver (driver.c) ---------------------------------------------------------------------------------- */

/* posix_spawn in a process group of its own: Ctrl-C is for the story, which then ends the others in their order. 0 or
 * an errno. */
must_check int demo_spawn(pid_t *ret, const char *program, const posix_spawn_file_actions_t *files,
                          const char *const argv[]);

struct demo_driver;

/* Starts `cisternd --role=standalone` (from the directory of this program) on `work`/csi.sock with the pool
 * `work`/pool, and waits until it answers Probe. */
must_check int demo_driver_start(const char *work, struct demo_driver **ret, struct err *err);
void demo_driver_free(struct demo_driver *d);              /* stops it and its keeper, waits; NULL is fine */
const char *demo_driver_name(const struct demo_driver *d); /* "csi.cistern.io 0.1.0" */

struct demo_volume {
    char id[128];
    char staging[256];
    char target[256];
};

/* The calls of the provisioner and the kubelet, in order. */
must_check int demo_volume_create(struct demo_driver *d, const char *source_uri, const char *export_uri, uint64_t bytes,
                                  struct demo_volume *ret, struct err *err);
/* Stages, then publishes. Retries "not ready" as a kubelet does, until `go_on` returns false or the driver reports the
 * volume as abnormal: its hydration failed. */
must_check int demo_volume_publish(struct demo_driver *d, struct demo_volume *v, bool (*go_on)(const char *sentence),
                                   struct err *err);
must_check int demo_volume_unpublish(struct demo_driver *d, struct demo_volume *v, struct err *err);
must_check int demo_volume_delete(struct demo_driver *d, struct demo_volume *v, bool (*go_on)(const char *sentence),
                                  struct err *err);
/* Kills the process that serves the volume's mount. */
must_check int demo_mount_kill(struct demo_driver *d, const struct demo_volume *v, struct err *err);
