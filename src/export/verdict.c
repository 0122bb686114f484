/* SPDX-License-Identifier: Apache-2.0 */
#include "verdict.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include "volume/volume.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define VERDICT_FILE "verdict.json"
#define PROGRESS_FILE "progress.json"
#define LOCK_FILE "lock"

/* 1: the code of a failure was a number */
enum { VERSION = 2, JSON_MAX = 1 << 20 };

static const char *const state_names[] = {"none", "running", "done", "failed"};
static const char *const purpose_names[] = {"manual", "unpublish", "release"};

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

const char *verdict_purpose_name(enum verdict_purpose p)
{
    return purpose_names[p];
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

/* ---- counts, as both files hold them ----------------------------------------------------------------------------- */

static const struct {
    const char *key;
    size_t offset;
} counts[] = {
    {"pending.files", offsetof(struct verdict, pending_files)},
    {"pending.bytes", offsetof(struct verdict, pending_bytes)},
    {"done.files", offsetof(struct verdict, done_files)},
    {"done.bytes", offsetof(struct verdict, done_bytes)},
    {"failed.files", offsetof(struct verdict, failed_files)},
    {"failed.bytes", offsetof(struct verdict, failed_bytes)},
    {"skipped.files", offsetof(struct verdict, skipped_files)},
    {"sizeOnly.files", offsetof(struct verdict, size_only_files)},
};

/* Those that older versions did not write. */
static const struct {
    const char *key;
    size_t offset;
} later_counts[] = {
    {"lookedOnly.files", offsetof(struct verdict, looked_only_files)},
    {"confirmedBy.crc64nvme", offsetof(struct verdict, proven_files[PROOF_CRC64NVME])},
    {"confirmedBy.crc32c", offsetof(struct verdict, proven_files[PROOF_CRC32C])},
    {"confirmedBy.crc32", offsetof(struct verdict, proven_files[PROOF_CRC32])},
    {"confirmedBy.sha256", offsetof(struct verdict, proven_files[PROOF_SHA256])},
    {"confirmedBy.md5", offsetof(struct verdict, proven_files[PROOF_MD5])},
    {"confirmedBy.composite", offsetof(struct verdict, proven_files[PROOF_COMPOSITE])},
    {"confirmedBy.readBack", offsetof(struct verdict, proven_files[PROOF_READ_BACK])},
    {"confirmedBy.size", offsetof(struct verdict, proven_files[PROOF_SIZE])},
};

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

static uint64_t *later_at(const struct verdict *v, size_t i)
{
    return (uint64_t *)((char *)v + later_counts[i].offset);
}

static uint64_t *count_at(const struct verdict *v, size_t i)
{
    return (uint64_t *)((char *)v + counts[i].offset);
}

static void put_counts(json *j, const struct verdict *v)
{
    for (size_t i = 0; i < countof(counts); i++)
        json_set_u64(j, counts[i].key, *count_at(v, i));
    for (size_t i = 0; i < countof(later_counts); i++)
        json_set_u64(j, later_counts[i].key, *later_at(v, i));
    json_set_i64(j, "updatedNs", v->updated_ns);
}

static int get_counts(const json *j, struct verdict *v, struct err *err)
{
    int r = json_get_i64(j, "updatedNs", &v->updated_ns, err);
    for (size_t i = 0; i < countof(counts) && r == 0; i++)
        r = json_get_u64(j, counts[i].key, count_at(v, i), err);
    for (size_t i = 0; i < countof(later_counts) && r == 0; i++)
        r = json_opt_u64(j, later_counts[i].key, later_at(v, i), err);
    return r;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Paths are any bytes; JSON and people want UTF-8. What is not, is shown as \xNN. */
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
    /* A cut inside a character would make the whole no UTF-8. */
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

static json *failure_json(const struct verdict_failure *f)
{
    json *j = json_new_object();
    json_set_str(j, "path", str_of(f->path));
    json_set_str(j, "code", str_of(err_code_name(f->err.code)));
    json_set_u64(j, "id", f->err.id);
    json_set_str(j, "text", str_of(f->err.text));
    json_set_str(j, "advice", str_of(f->err.advice));
    return j;
}

static int get_text(const json *j, const char *path, char *buf, size_t size, struct err *err)
{
    struct str s;
    int r = json_get_str(j, path, &s, err);
    if (r == 0 && s.len >= size)
        return err_set(err, ERR_CORRUPT, "'%s' is longer than %zu bytes", path, size - 1);
    if (r == 0)
        snprintf(buf, size, "%.*s", STR_FMT(s));
    return r;
}

static int get_code(const json *j, uint64_t version, enum err_code *ret, struct err *err)
{
    struct str name;
    uint64_t number;
    int r = version < 2 ? json_get_u64(j, "code", &number, err) : json_get_str(j, "code", &name, err);
    if (r == 0)
        *ret = version < 2 ? (enum err_code)number : err_code_of_name(name);
    return r;
}

static int get_failure(const json *j, uint64_t version, struct verdict_failure *f, struct err *err)
{
    enum err_code code = ERR_INTERNAL;
    uint64_t id = 0;
    int r = get_text(j, "path", f->path, sizeof f->path, err);
    if (r == 0)
        r = get_code(j, version, &code, err);
    if (r == 0)
        r = json_get_u64(j, "id", &id, err);
    if (r == 0)
        r = get_text(j, "text", f->err.text, sizeof f->err.text, err);
    if (r == 0)
        r = get_text(j, "advice", f->err.advice, sizeof f->err.advice, err);
    f->err.code = code;
    f->err.id = (unsigned)id;
    return r;
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

/* ---- the files --------------------------------------------------------------------------------------------------- */

int verdict_write(int export_dir, const struct verdict *v, struct err *err)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", VERSION);
    json_set_str(j, "state", str_of(verdict_state_name(v->state)));
    json_set_str(j, "purpose", str_of(verdict_purpose_name(v->purpose)));
    json_set_str(j, "uri", str_of(v->uri));
    json_set_i64(j, "startedNs", v->started_ns);
    json_set_i64(j, "pendingSinceNs", v->pending_since_ns);
    json_set_u64(j, "writes", v->writes);
    put_counts(j, v);
    json *failures = json_new_array();
    for (size_t i = 0; i < v->failed_count; i++)
        json_append(failures, failure_json(&v->failed[i]));
    json_set(j, "failures", failures);
    auto_mem char *text = json_text(j, 2);
    int r = file_replace(export_dir, VERDICT_FILE, str_of(text), 0644, err);
    return r < 0 ? err_wrap(err, "writing '" VOLUME_EXPORT "/" VERDICT_FILE "'") : 0;
}

int verdict_write_progress(int export_dir, const struct verdict *v, struct err *err)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", VERSION);
    json_set_i64(j, "startedNs", v->started_ns);
    put_counts(j, v);
    auto_mem char *text = json_text(j, 0);
    auto_fd fd = openat(export_dir, "." PROGRESS_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, errno, "cannot create '" PROGRESS_FILE "'");
    int r = file_write_all(fd, PROGRESS_FILE, text, strlen(text), err);
    if (r == 0 && renameat(export_dir, "." PROGRESS_FILE, export_dir, PROGRESS_FILE) != 0)
        r = err_sys(err, errno, "cannot replace '" PROGRESS_FILE "'");
    return r;
}

static int parse_state(const json *j, struct verdict *v, struct err *err)
{
    struct str name, purpose;
    int r = json_get_str(j, "state", &name, err);
    if (r == 0)
        r = json_get_str(j, "purpose", &purpose, err);
    if (r == 0)
        r = verdict_purpose_parse(purpose, &v->purpose, err);
    for (size_t i = VERDICT_RUNNING; i < countof(state_names) && r == 0; i++)
        if (str_eq(name, str_of(state_names[i])))
            v->state = (enum verdict_state)i;
    if (r == 0 && v->state == VERDICT_NONE)
        return err_set(err, ERR_CORRUPT, "'%.*s' is not a state of an export", STR_FMT(name));
    return r;
}

static int parse_verdict(struct str text, struct verdict *v, struct err *err)
{
    auto_json j = NULL;
    uint64_t version;
    int r = json_parse(text, VERDICT_FILE, &j, err);
    if (r == 0)
        r = json_get_u64(j, "version", &version, err);
    if (r == 0 && version > VERSION) {
        err_set(err, ERR_UNSUPPORTED, "format %" PRIu64 " of a newer Cistern; this one reads formats up to %d", version,
                VERSION);
        return err_advise(err, 4023, "run the Cistern that wrote it, or a newer one");
    }
    if (r == 0)
        r = parse_state(j, v, err);
    if (r == 0)
        r = get_text(j, "uri", v->uri, sizeof v->uri, err);
    if (r == 0)
        r = json_get_i64(j, "startedNs", &v->started_ns, err);
    v->pending_since_ns = v->started_ns; /* older versions do not say */
    if (r == 0)
        r = json_opt_i64(j, "pendingSinceNs", &v->pending_since_ns, err);
    if (r == 0)
        r = json_opt_u64(j, "writes", &v->writes, err);
    if (r == 0)
        r = get_counts(j, v, err);
    return r < 0 ? r : get_failures(j, version, v, err);
}

/* Progress is for people: if it is not there, torn or of an earlier run, the verdict's own counts do. */
static void merge_progress(int dir, struct verdict *v)
{
    struct err ignored;
    struct verdict p = *v;
    auto_mem char *text = NULL;
    auto_json j = NULL;
    size_t len;
    int64_t started;
    if (file_read(dir, PROGRESS_FILE, JSON_MAX, &text, &len, &ignored) == 0 &&
        json_parse((struct str){text, len}, PROGRESS_FILE, &j, &ignored) == 0 &&
        json_get_i64(j, "startedNs", &started, &ignored) == 0 && started == v->started_ns &&
        get_counts(j, &p, &ignored) == 0)
        *v = p;
}

static struct flock whole_file(short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

static bool is_locked(int dir)
{
    struct flock l = whole_file(F_WRLCK);
    auto_fd fd = openat(dir, LOCK_FILE, O_RDWR | O_CLOEXEC);
    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

/* ERR_NOT_FOUND: there is none, and *is_absent says so; a member that a file lacks is that, too. */
static int read_files(int dir, struct verdict *v, bool *is_absent, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len = 0;
    int r = file_read(dir, VERDICT_FILE, JSON_MAX, &text, &len, err);
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
    auto_fd dir = openat(volume, VOLUME_EXPORT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Before the file is read: a run that ends in between is seen as alive at worst, never as dead. */
    v.alive = dir >= 0 && is_locked(dir);
    int r = dir < 0 ? err_sys(err, errno, "cannot open the folder '" VOLUME_EXPORT "'")
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
        return err_advise(err, 4020, "remove that file: the export then runs again and compares with the bucket");
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
    if (r < 0 || (last.state != VERDICT_RUNNING && last.state != VERDICT_FAILED))
        return 0;
    v->pending_files = last.pending_files + last.failed_files;
    v->pending_bytes = last.pending_bytes + last.failed_bytes;
    v->pending_since_ns = last.pending_since_ns;
    return 0;
}

int verdict_lock(int volume, int *ret_export_dir, int *ret_lock, struct err *err)
{
    auto_fd dir = -1;
    int r = dir_make(volume, VOLUME_EXPORT, 0700, &dir, err);
    if (r < 0)
        return r;
    auto_fd lock = openat(dir, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0)
        return err_sys(err, errno, "cannot open '" VOLUME_EXPORT "/" LOCK_FILE "'");
    struct flock l = whole_file(F_WRLCK);
    if (fcntl(lock, F_OFD_SETLK, &l) != 0) {
        if (errno != EAGAIN && errno != EACCES)
            return err_sys(err, errno, "cannot lock '" VOLUME_EXPORT "/" LOCK_FILE "'");
        err_set(err, ERR_BUSY, "another export of this folder is running");
        return err_advise(err, 4003, "wait for it; `cistern status` shows how far it is");
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
