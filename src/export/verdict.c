/* SPDX-License-Identifier: Apache-2.0 */
#include "verdict.h"
#include "pool/volume.h"
#include "util/file.h"
#include "util/json_fields.h"
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define VERDICT_FILE "verdict.json"
#define PROGRESS_FILE "progress.json"
#define LOCK_FILE "lock"
#define RESERVE_FILE "reserve"

/* 1: the code of a failure was a number */
enum { VERSION = 2, JSON_MAX = 1 << 20 };

static const char *const state_names[] = {"none", "running", "done", "failed"};
static const char *const purpose_names[] = {"manual", "unpublish", "release"};
static_assert(countof(state_names) == VERDICT_FAILED + 1 && countof(purpose_names) == VERDICT_FOR_RELEASE + 1, "");

const char *verdict_state_name(enum verdict_state s)
{
    return state_names[s];
}

const char *verdict_phase(const struct verdict *v)
{
    switch (v->state) {
    case VERDICT_RUNNING:
        return v->alive ? "Exporting" : "ExportInterrupted";
    case VERDICT_FAILED:
        return "ExportFailed";
    case VERDICT_DONE:
        return v->purpose == VERDICT_FOR_RELEASE ? "Released" : NULL;
    case VERDICT_NONE:
        break;
    }
    return NULL;
}

int verdict_purpose_parse(struct str s, enum verdict_purpose *ret, struct err *err)
{
    for (size_t i = 0; i < countof(purpose_names); i++)
        if (str_eq(s, str_of(purpose_names[i]))) {
            *ret = (enum verdict_purpose)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "'%.*s' is not manual, unpublish or release", STR_FMT(s));
}

void verdict_init(struct verdict *v)
{
    *v = (struct verdict){.state = VERDICT_NONE};
}

void verdict_done(struct verdict *v)
{
    free(v->failed);
    verdict_init(v);
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

#define AT(f) .offset = offsetof(struct verdict, f), .size = sizeof((struct verdict){0}.f)
#define COUNT(key, f)                                                                                                  \
    {                                                                                                                  \
        key, JSON_U64, JSON_REQUIRED | JSON_ALWAYS, AT(f)                                                              \
    }
#define LATER(key, f)                                                                                                  \
    {                                                                                                                  \
        key, JSON_U64, JSON_ALWAYS, AT(f)                                                                              \
    } /* older versions did not write it */

static const struct json_field verdict_fields[] = {
    {"state", JSON_NAME, JSON_REQUIRED | JSON_ALWAYS, AT(state), JSON_NAMES(state_names)},
    {"purpose", JSON_NAME, JSON_REQUIRED | JSON_ALWAYS, AT(purpose), JSON_NAMES(purpose_names)},
    {"uri", JSON_BUFFER, JSON_REQUIRED | JSON_ALWAYS, AT(uri)},
    {"startedNs", JSON_I64, JSON_REQUIRED | JSON_ALWAYS, AT(started_ns)},
    {"pendingSinceNs", JSON_I64, JSON_ALWAYS, AT(pending_since_ns)},
    LATER("writes", writes),
};
/* Both files have these. */
static const struct json_field count_fields[] = {
    COUNT("pending.files", pending_files),
    COUNT("pending.bytes", pending_bytes),
    COUNT("done.files", done_files),
    COUNT("done.bytes", done_bytes),
    COUNT("failed.files", failed_files),
    COUNT("failed.bytes", failed_bytes),
    COUNT("skipped.files", skipped_files),
    COUNT("sizeOnly.files", size_only_files),
    LATER("lookedOnly.files", head_only_files),
    LATER("confirmedBy.crc64nvme", proven_files[PROOF_CRC64NVME]),
    LATER("confirmedBy.crc32c", proven_files[PROOF_CRC32C]),
    LATER("confirmedBy.crc32", proven_files[PROOF_CRC32]),
    LATER("confirmedBy.sha256", proven_files[PROOF_SHA256]),
    LATER("confirmedBy.md5", proven_files[PROOF_MD5]),
    LATER("confirmedBy.composite", proven_files[PROOF_COMPOSITE]),
    LATER("confirmedBy.readBack", proven_files[PROOF_READ_BACK]),
    LATER("confirmedBy.size", proven_files[PROOF_SIZE]),
    {"updatedNs", JSON_I64, JSON_REQUIRED | JSON_ALWAYS, AT(updated_ns)},
};
#undef AT

#define AT(f) .offset = offsetof(struct verdict_failure, f), .size = sizeof(((struct verdict_failure *)NULL)->f)
enum { FAILURE_CODE_AT = 1 };
static const struct json_field failure_fields[] = {
    {"path", JSON_BUFFER, JSON_REQUIRED | JSON_ALWAYS, AT(path)},
    [FAILURE_CODE_AT] = {"code", JSON_CODE, JSON_REQUIRED | JSON_ALWAYS, AT(err.code)},
    {"id", JSON_UINT, JSON_REQUIRED | JSON_ALWAYS, AT(err.id)},
    {"text", JSON_BUFFER, JSON_REQUIRED | JSON_ALWAYS, AT(err.text)},
    {"advice", JSON_BUFFER, JSON_REQUIRED | JSON_ALWAYS, AT(err.advice)},
};
#undef AT

const char *verdict_proof_name(enum verdict_proof p)
{
    static const char *const names[PROOFS] = {[PROOF_NONE] = "nothing",
                                              [PROOF_CRC64NVME] = "CRC64NVME",
                                              [PROOF_CRC32C] = "CRC32C",
                                              [PROOF_CRC32] = "CRC32",
                                              [PROOF_SHA256] = "SHA-256",
                                              [PROOF_MD5] = "MD5 (ETag)",
                                              [PROOF_COMPOSITE] = "composite of its parts",
                                              [PROOF_READ_BACK] = "reading back",
                                              [PROOF_SIZE] = "size only"};
    return names[p];
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* A path may have any bytes; JSON and people need UTF-8. Other bytes are shown as \xNN. */
static void show_path(struct str path, char *buf, size_t size)
{
    bool whole = str_is_utf8(path);
    size_t at = 0;
    for (size_t i = 0; i < path.len && at + 5 < size; i++) {
        unsigned char c = (unsigned char)path.ptr[i];
        if (whole || (c >= 0x20 && c < 0x7f))
            buf[at++] = (char)c;
        else
            at += (size_t)snprintf(buf + at, size - at, "\\x%02x", c);
    }
    /* A cut inside a character would make the text invalid UTF-8. */
    while (at > 0 && !str_is_utf8((struct str){buf, at}))
        at--;
    buf[at] = '\0';
}

void verdict_add_failure(struct verdict *v, struct str path, uint64_t size_bytes, const struct err *why)
{
    v->failed_files++;
    v->failed_bytes += size_bytes;
    if (v->failed_count == VERDICT_FAILED_MAX)
        return;
    if (!v->failed)
        v->failed = xcalloc(VERDICT_FAILED_MAX, sizeof *v->failed);
    struct verdict_failure *f = &v->failed[v->failed_count++];
    show_path(path, f->path, sizeof f->path);
    f->err = *why;
}

uint64_t verdict_missing_files(const struct verdict *v)
{
    return v->failed_files + v->pending_files;
}

/* Version 1 had the code as a number. */
static int get_failure(const json *j, uint64_t version, struct verdict_failure *f, struct err *err)
{
    uint64_t number;
    if (version >= 2)
        return json_fields_read(j, failure_fields, countof(failure_fields), f, err);
    int r = json_fields_read(j, failure_fields, FAILURE_CODE_AT, f, err);
    if (r == 0)
        r = json_get_u64(j, "code", &number, err);
    if (r < 0)
        return r;
    f->err.code = (enum err_code)number;
    return json_fields_read(j, failure_fields + FAILURE_CODE_AT + 1, countof(failure_fields) - FAILURE_CODE_AT - 1, f,
                            err);
}

static int get_failures(const json *j, uint64_t version, struct verdict *v, struct err *err)
{
    const json *list = json_at(j, "failures");
    size_t n = json_count(list);
    if (n > VERDICT_FAILED_MAX)
        return err_set(err, ERR_CORRUPT, "'failures' has %zu entries, more than %d", n, VERDICT_FAILED_MAX);
    v->failed = n ? xcalloc(VERDICT_FAILED_MAX, sizeof *v->failed) : NULL;
    int r = 0;
    for (v->failed_count = 0; v->failed_count < n && r == 0; v->failed_count++)
        r = get_failure(json_item(list, v->failed_count), version, &v->failed[v->failed_count], err);
    return r;
}

/* ---- the reserve -------------------------------------------------------------------------------------------------
 * Blocks that a run frees if the disk is full: half of them at its start, for its records and about 2,000 lines of the
 * logbook, and half at its end. */

enum { RESERVE_BYTES = 1 << 20 };

static void fill_reserve(int dir)
{
    auto_fd fd = -1;
    struct stat st;
    if (file_open_state(dir, RESERVE_FILE, O_WRONLY | O_CREAT, 0600, &fd, ERR_IGNORED) == 0 && fstat(fd, &st) == 0 &&
        st.st_size < RESERVE_BYTES)
        (void)!fallocate(fd, 0, 0, RESERVE_BYTES);
}

void verdict_reserve(int volume)
{
    auto_fd dir = -1, lock = -1;
    if (dir_make(volume, VOLUME_EXPORT, 0700, &dir, ERR_IGNORED) == 0 &&
        file_open_state(dir, LOCK_FILE, O_RDWR | O_CREAT, 0600, &lock, ERR_IGNORED) == 0)
        fill_reserve(dir);
}

static bool spend_reserve(int dir)
{
    auto_fd fd = -1;
    struct stat st;
    return file_open_state(dir, RESERVE_FILE, O_WRONLY, 0, &fd, ERR_IGNORED) == 0 && fstat(fd, &st) == 0 &&
           st.st_size > 0 && ftruncate(fd, st.st_size > RESERVE_BYTES / 2 ? RESERVE_BYTES / 2 : 0) == 0;
}

bool verdict_spend_reserve(int volume)
{
    auto_fd dir = openat(volume, VOLUME_EXPORT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir >= 0 && spend_reserve(dir);
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

int verdict_write(int export_dir, const struct verdict *v, struct err *err)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", VERSION);
    json_fields_write(j, verdict_fields, countof(verdict_fields), v);
    json_fields_write(j, count_fields, countof(count_fields), v);
    json_set(j, "failures",
             json_fields_list(failure_fields, countof(failure_fields), v->failed, v->failed_count, sizeof *v->failed));
    auto_mem char *text = json_text(j, 2);
    int r = file_replace(export_dir, VERDICT_FILE, str_of(text), 0644, err);
    if (r == -ERR_NO_SPACE && spend_reserve(export_dir))
        r = file_replace(export_dir, VERDICT_FILE, str_of(text), 0644, err);
    return r < 0 ? err_wrap(err, "writing '" VOLUME_EXPORT "/" VERDICT_FILE "'") : 0;
}

int verdict_write_progress(int export_dir, const struct verdict *v, struct err *err)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", VERSION);
    json_set_i64(j, "startedNs", v->started_ns);
    json_fields_write(j, count_fields, countof(count_fields), v);
    auto_mem char *text = json_text(j, 0);
    return file_swap(export_dir, PROGRESS_FILE, str_of(text), 0644, err);
}

static int parse_verdict(struct str text, struct verdict *v, struct err *err)
{
    auto_json j = NULL;
    uint64_t version;
    int r = json_parse(text, VERDICT_FILE, &j, err);
    if (r == 0)
        r = json_get_u64(j, "version", &version, err);
    if (r == 0 && version > VERSION)
        return err_fail(err, ERR_UNSUPPORTED, CIS_EXPORT_RECORD_VERSION,
                        "format %" PRIu64 " of a newer Cistern; this one reads formats up to %d", version, VERSION);
    v->pending_since_ns = INT64_MIN;
    if (r == 0)
        r = json_fields_read(j, verdict_fields, countof(verdict_fields), v, err);
    if (r == 0 && v->state == VERDICT_NONE)
        return err_set(err, ERR_CORRUPT, "'none' is not the state of an export");
    if (v->pending_since_ns == INT64_MIN) /* older versions do not say */
        v->pending_since_ns = v->started_ns;
    if (r == 0)
        r = json_fields_read(j, count_fields, countof(count_fields), v, err);
    return r < 0 ? r : get_failures(j, version, v, err);
}

/* Progress is for people: if it is missing, torn or of an earlier run, use the verdict's own counts. */
static void merge_progress(int dir, struct verdict *v)
{
    struct verdict p = *v;
    auto_mem char *text = NULL;
    auto_json j = NULL;
    size_t len;
    int64_t started;
    if (file_read_state(dir, PROGRESS_FILE, JSON_MAX, &text, &len, ERR_IGNORED) == 0 &&
        json_parse((struct str){text, len}, PROGRESS_FILE, &j, ERR_IGNORED) == 0 &&
        json_get_i64(j, "startedNs", &started, ERR_IGNORED) == 0 && started == v->started_ns &&
        json_fields_read(j, count_fields, countof(count_fields), &p, ERR_IGNORED) == 0)
        *v = p;
}

/* ERR_NOT_FOUND with *is_absent: no verdict. A file without a required member is ERR_NOT_FOUND too. */
static int read_files(int dir, struct verdict *v, bool *is_absent, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len = 0;
    int r = file_read_state(dir, VERDICT_FILE, JSON_MAX, &text, &len, err);
    *is_absent = r == -ERR_NOT_FOUND;
    if (r == 0)
        r = parse_verdict((struct str){text, len}, v, err);
    if (r == 0 && v->state == VERDICT_RUNNING)
        merge_progress(dir, v);
    return r;
}

static int name_verdict(struct err *err)
{
    return err_wrap(err, "the verdict of the export, '" VOLUME_EXPORT "/" VERDICT_FILE "'");
}

int verdict_read(int volume, struct verdict *ret, struct err *err)
{
    struct verdict v;
    bool is_absent = false;
    verdict_init(&v);
    auto_fd dir = openat(volume, VOLUME_EXPORT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* Tested before the file is read: a run that ends in between may appear alive, but never dead. */
    v.alive = dir >= 0 && file_is_locked(dir, LOCK_FILE);
    int r = dir < 0 ? err_sys(err, errno, "cannot open the directory '" VOLUME_EXPORT "'")
                    : read_files(dir, &v, &is_absent, err);
    if (r == -ERR_NOT_FOUND && (dir < 0 || is_absent)) {
        verdict_init(ret);
        return 0;
    }
    if (r < 0) {
        verdict_done(&v);
        bool is_text = r == -ERR_INVALID || r == -ERR_NOT_FOUND;
        err->code = is_text ? ERR_CORRUPT : err->code;
        name_verdict(err);
        if (r == -ERR_UNSUPPORTED)
            return r;
        return err_advise(err, CIS_VERDICT_CORRUPT);
    }
    *ret = v;
    return 0;
}

int verdict_inherit(int export_dir, struct verdict *v, struct err *err)
{
    struct err why;
    bool is_absent;
    auto_with(verdict_done) struct verdict last;
    verdict_init(&last);
    int r = read_files(export_dir, &last, &is_absent, &why);
    if (r == -ERR_UNSUPPORTED) {
        name_verdict(&why);
        return err_copy(err, &why);
    }
    /* The start is the name of a run: its progress and its metrics go by it. */
    if (r == 0 && v->started_ns <= last.started_ns)
        v->started_ns = last.started_ns + 1;
    if (r < 0 || (last.state != VERDICT_RUNNING && last.state != VERDICT_FAILED))
        return 0;
    v->pending_files = last.pending_files + last.failed_files;
    v->pending_bytes = last.pending_bytes + last.failed_bytes;
    v->pending_since_ns = last.pending_since_ns;
    return 0;
}

int verdict_lock(int volume, int *ret_export_dir, int *ret_lock, struct err *err)
{
    auto_fd dir = -1, lock = -1;
    int r = dir_make(volume, VOLUME_EXPORT, 0700, &dir, err);
    if (r == 0)
        r = file_open_state(dir, LOCK_FILE, O_RDWR | O_CREAT, 0600, &lock, err);
    if (r < 0)
        return r;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(lock, F_OFD_SETLK, &l) != 0) {
        if (errno != EAGAIN && errno != EACCES)
            return err_sys(err, errno, "cannot lock '" VOLUME_EXPORT "/" LOCK_FILE "'");
        return err_fail(err, ERR_BUSY, CIS_EXPORT_RUNNING, "another export of this directory is running");
    }
    *ret_export_dir = take_fd(&dir);
    *ret_lock = take_fd(&lock);
    return 0;
}

int verdict_forget(int volume, struct err *err)
{
    auto_fd dir = -1, lock = -1;
    int r = verdict_lock(volume, &dir, &lock, err);
    if (r < 0)
        return r;
    if (unlinkat(dir, VERDICT_FILE, 0) != 0 && errno != ENOENT)
        return err_sys(err, errno, "cannot remove '" VOLUME_EXPORT "/" VERDICT_FILE "'");
    return dir_sync(dir, VERDICT_FILE, err);
}
