/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - The durable result of an export: it decides whether a volume may be deleted. home: any thread; all
 * functions may block on the disk. Lives in <volume>/export/:
 *
 *   verdict.json   replaced atomically and flushed; says "done" only after the bucket confirmed size and checksum of
 *                  every file, and after the logbook was flushed
 *   progress.json  replaced during a run, at most twice a second, not flushed: for people
 *   reserve        1 MiB of the disk, for the records of a run on a full disk
 *   lock           held by the running export (an open-file-description lock): shows that it is alive
 *
 * A run that was killed or stopped leaves VERDICT_RUNNING with `alive` false: start it again, and it continues. */
#pragma once

#include "util/err.h"
#include "util/str.h"

enum verdict_state {
    VERDICT_NONE,    /* no export was ever begun here */
    VERDICT_RUNNING, /* started, not ended; `alive` shows whether a process runs it now */
    VERDICT_DONE,    /* every file that the policy asks for was confirmed by the bucket */
    VERDICT_FAILED,  /* ended, and at least one file is not in the bucket */
};

/* Why the run was started. A volume may be deleted only on VERDICT_DONE of a run VERDICT_FOR_RELEASE whose `writes`
 * are still the record's: an earlier run does not cover later writes. */
enum verdict_purpose { VERDICT_FOR_MANUAL, VERDICT_FOR_UNPUBLISH, VERDICT_FOR_RELEASE };

enum { VERDICT_PATH_MAX = 4096, VERDICT_URI_MAX = 2048, VERDICT_FAILED_MAX = 10 };

struct verdict_failure {
    char path[VERDICT_PATH_MAX]; /* below the volume; bytes that are not UTF-8 are shown as \xNN */
    struct err err;
};

/* The proof that an object has the file's bytes. */
enum verdict_proof {
    PROOF_NONE,
    PROOF_CRC64NVME,
    PROOF_CRC32C,
    PROOF_CRC32,
    PROOF_SHA256,
    PROOF_MD5,       /* the ETag */
    PROOF_COMPOSITE, /* the checksum or the ETag over those of the parts */
    PROOF_READ_BACK, /* the object was read, and compared */
    PROOF_SIZE,
    PROOFS
};
const char *verdict_proof_name(enum verdict_proof p); /* "CRC64NVME", "read back" */

struct verdict {
    enum verdict_state state;
    enum verdict_purpose purpose;
    bool alive;                /* an export holds the lock at this moment */
    char uri[VERDICT_URI_MAX]; /* where to */
    uint64_t pending_files, pending_bytes;
    uint64_t done_files, done_bytes;     /* files confirmed by this or an earlier run, and unchanged since */
    uint64_t failed_files, failed_bytes; /* all of them; the first ones are in `failed` */
    uint64_t skipped_files;        /* links, fifos, sockets, devices, empty directories: a bucket cannot store them */
    uint64_t size_only_files;      /* part of done: the store has no checksum to compare */
    uint64_t proven_files[PROOFS]; /* files of this run, by kind of proof */
    uint64_t head_only_files;      /* part of done, by this run: only a HEAD directly before the write protected another
                                        writer's object; the store did not prove that it honours the condition */
    int64_t started_ns, updated_ns; /* wall clock; updated_ns is the end once DONE or FAILED */
    uint64_t writes;                /* of the volume's record when the run started, for release: see pool/record.h */
    int64_t pending_since_ns; /* start of the first of the successive runs that left files pending; may be this one */
    size_t failed_count;      /* entries of `failed` */
    struct verdict_failure *failed; /* owned; in the order of their failures, the first one is failed[0] */
};

void verdict_init(struct verdict *v);
void verdict_done(struct verdict *v); /* may run twice */

/* Reads <volume>/export/ below the directory `volume`. VERDICT_NONE and success if there is no verdict. On failure
 * *ret is untouched; on success the caller calls verdict_done. A malformed file is ERR_CORRUPT. */
must_check int verdict_read(int volume, struct verdict *ret, struct err *err);

/* Copies the pending files of the last run into the new run's verdict, until the new run has walked the directory: a
 * reader must never see zero pending files in between. `v` keeps its own times. An unreadable verdict is ignored,
 * except ERR_UNSUPPORTED: a newer version wrote it, and it must not be replaced. */
must_check int verdict_inherit(int export_dir, struct verdict *v, struct err *err);

/* Adds a failure: counts it, and keeps the first VERDICT_FAILED_MAX. */
void verdict_add_failure(struct verdict *v, struct str path, uint64_t size_bytes, const struct err *why);

/* Files that are not in the bucket: those that failed, and those that a run left when it ended early. */
uint64_t verdict_missing_files(const struct verdict *v);

/* Durable when it returns 0. `export_dir` is the directory <volume>/export. */
must_check int verdict_write(int export_dir, const struct verdict *v, struct err *err);
/* Not durable, cheap. */
must_check int verdict_write_progress(int export_dir, const struct verdict *v, struct err *err);

/* Makes <volume>/export with its lock and its reserve. Without them, a full disk delays the export. */
void verdict_reserve(int volume);
/* Frees half of the reserve, as a run does if the disk is full. False: nothing is left of it. */
bool verdict_spend_reserve(int volume);

/* Makes both, and takes its lock, for as long as *ret_lock is open: ERR_BUSY while another run lives. */
must_check int verdict_lock(int volume, int *ret_export_dir, int *ret_lock, struct err *err);

/* Voids the verdict of an earlier run, because pods may write again. Durable; a missing verdict is success. ERR_BUSY
 * while an export is alive. */
must_check int verdict_forget(int volume, struct err *err);

/* A volume's phase in tables and metrics: "Exporting", "ExportInterrupted" (not running), "ExportFailed", "Released";
 * NULL where the phase of its hydration says more. */
const char *verdict_phase(const struct verdict *v);

const char *verdict_state_name(enum verdict_state s); /* "none" "running" "done" "failed" */
must_check int verdict_purpose_parse(struct str s, enum verdict_purpose *ret, struct err *err);
