/* SPDX-License-Identifier: Apache-2.0 */
#include "hydrate/status.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include <fcntl.h>
#include <stdio.h>

enum { STATUS_BYTES_MAX = 1 << 20, VERSION = 1 };

static const char *const phases[] = {
    [HYDRATE_STARTING] = "starting",   [HYDRATE_LISTING] = "listing", [HYDRATE_FETCHING] = "fetching",
    [HYDRATE_VERIFYING] = "verifying", [HYDRATE_DONE] = "done",       [HYDRATE_FAILED] = "failed",
    [HYDRATE_STOPPED] = "stopped",
};

const char *hydrate_phase_name(enum hydrate_phase p)
{
    return (size_t)p < countof(phases) ? phases[p] : "unknown";
}

const char *hydrate_phase_label(enum hydrate_phase p, bool alive)
{
    switch (p) {
    case HYDRATE_DONE:
        return "Ready";
    case HYDRATE_FAILED:
        return "Failed";
    case HYDRATE_STOPPED:
        return "Interrupted";
    case HYDRATE_STARTING:
    case HYDRATE_LISTING:
        return alive ? "Listing" : "Interrupted";
    case HYDRATE_FETCHING:
        return alive ? "Hydrating" : "Interrupted";
    case HYDRATE_VERIFYING:
        return alive ? "Verifying" : "Interrupted";
    }
    return "Failed";
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void set_time(json *j, const char *key, int64_t wall_ns)
{
    char text[TIME_TEXT_MAX];
    if (wall_ns != 0)
        json_set_str(j, key, str_of(time_text(wall_ns, text)));
}

static json *fault_json(const struct hydrate_fault *f)
{
    json *j = json_new_object();
    char id[16];
    snprintf(id, sizeof id, "CIS%04u", f->id);
    if (f->object[0])
        json_set_str(j, "object", str_of(f->object));
    if (f->id)
        json_set_str(j, "id", str_of(id));
    json_set_str(j, "code", str_of(err_code_name(f->code)));
    json_set_str(j, "message", str_of(f->message));
    json_set_u64(j, "attempts", f->attempts);
    set_time(j, "time", f->time_ns);
    return j;
}

static char *status_text(const struct hydrate_status *s)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", VERSION);
    json_set_str(j, "phase", str_of(hydrate_phase_name(s->phase)));
    json_set_str(j, "source", str_of(s->source));
    json_set_u64(j, "objectsTotal", s->objects_total);
    json_set_u64(j, "objectsDone", s->objects_done);
    json_set_u64(j, "objectsFailed", s->objects_failed);
    json_set_u64(j, "objectsSizeOnly", s->objects_size_only);
    json_set_u64(j, "objectsMissing", s->objects_missing);
    json_set_u64(j, "objectsKept", s->objects_kept);
    json_set_u64(j, "bytesTotal", s->bytes_total);
    json_set_u64(j, "bytesDone", s->bytes_done);
    json_set_u64(j, "bytesPerSecond", s->bytes_per_second);
    if (s->eta_seconds != UINT64_MAX)
        json_set_u64(j, "etaSeconds", s->eta_seconds);
    json_set_u64(j, "requests", s->requests);
    json_set_u64(j, "attempt", s->attempt);
    if (s->manifest[0])
        json_set_str(j, "manifestDigest", str_of(s->manifest));
    if (s->listing.known) {
        json_set_u64(j, "listing.objectsExcluded", s->listing.objects_excluded);
        if (s->listing.names_skipped) {
            json_set_u64(j, "listing.namesSkipped", s->listing.names_skipped);
            json_set_str(j, "listing.lastSkipped", str_of(s->listing.last_skipped));
        }
        json_set_u64(j, "listing.largestObjectBytes", s->listing.largest_bytes);
        json_set_u64(j, "listing.seconds", s->listing.seconds);
    }
    json_set_i64(j, "pid", s->pid);
    set_time(j, "beganAt", s->began_ns);
    set_time(j, "startedAt", s->started_ns);
    set_time(j, "updatedAt", s->updated_ns);
    set_time(j, "finishedAt", s->finished_ns);
    if (s->has_error)
        json_set(j, "error", fault_json(&s->error));
    json *errors = json_new_array();
    for (size_t i = 0; i < s->error_count; i++)
        json_append(errors, fault_json(&s->errors[i]));
    json_set(j, "errors", errors);
    return json_text(j, 2);
}

int hydrate_status_write(int dir, const struct hydrate_status *s, struct err *err)
{
    static const char temporary[] = "." HYDRATE_STATUS_FILE;
    auto_mem char *text = status_text(s);
    auto_fd fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_sys(err, errno, "cannot write '%s'", HYDRATE_STATUS_FILE);
    int r = file_write_all(fd, HYDRATE_STATUS_FILE, text, strlen(text), err);
    if (r < 0)
        return r;
    return renameat(dir, temporary, dir, HYDRATE_STATUS_FILE) == 0
               ? 0
               : err_sys(err, errno, "cannot replace '%s'", HYDRATE_STATUS_FILE);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int read_text(const json *j, const char *path, char *buf, size_t size, struct err *err)
{
    struct str s = STR_NULL;
    int r = json_opt_str(j, path, &s, err);
    if (r == 0)
        snprintf(buf, size, "%.*s", STR_FMT(s));
    return r;
}

static int read_time(const json *j, const char *path, int64_t *ret, struct err *err)
{
    struct str s = STR_NULL;
    int r = json_opt_str(j, path, &s, err);
    return r < 0 || s.len == 0 ? r : time_parse(s, ret, err);
}

static enum err_code code_of(struct str name)
{
    for (int code = 1; code < 64; code++)
        if (str_eq(name, str_of(err_code_name((enum err_code)code))))
            return (enum err_code)code;
    return ERR_INTERNAL;
}

static int read_fault(const json *j, struct hydrate_fault *ret, struct err *err)
{
    char text[32];
    uint64_t attempts = 0;
    int r = read_text(j, "object", ret->object, sizeof ret->object, err);
    if (r == 0)
        r = read_text(j, "message", ret->message, sizeof ret->message, err);
    if (r == 0)
        r = read_text(j, "code", text, sizeof text, err);
    ret->code = r == 0 ? code_of(str_of(text)) : ERR_INTERNAL;
    if (r == 0)
        r = read_text(j, "id", text, sizeof text, err);
    uint64_t id = 0;
    if (r == 0 && text[0])
        r = str_to_u64(str_from(str_of(text), 3), &id, err);
    if (r == 0)
        r = json_opt_u64(j, "attempts", &attempts, err);
    ret->id = (unsigned)id;
    ret->attempts = (unsigned)attempts;
    return r == 0 ? read_time(j, "time", &ret->time_ns, err) : r;
}

static int read_phase(const json *j, enum hydrate_phase *ret, struct err *err)
{
    struct str name;
    int r = json_get_str(j, "phase", &name, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < countof(phases); i++)
        if (str_eq(name, str_of(phases[i]))) {
            *ret = (enum hydrate_phase)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "phase is '%.*s'", (int)min_u64(name.len, 64), name.ptr);
}

static int read_numbers(const json *j, struct hydrate_status *s, struct err *err)
{
    uint64_t attempt = 1, pid = 0;
    struct {
        const char *key;
        uint64_t *target;
    } numbers[] = {
        {"objectsTotal", &s->objects_total},
        {"objectsDone", &s->objects_done},
        {"objectsFailed", &s->objects_failed},
        {"objectsSizeOnly", &s->objects_size_only},
        {"objectsMissing", &s->objects_missing},
        {"objectsKept", &s->objects_kept},
        {"listing.objectsExcluded", &s->listing.objects_excluded},
        {"listing.namesSkipped", &s->listing.names_skipped},
        {"listing.largestObjectBytes", &s->listing.largest_bytes},
        {"listing.seconds", &s->listing.seconds},
        {"bytesTotal", &s->bytes_total},
        {"bytesDone", &s->bytes_done},
        {"etaSeconds", &s->eta_seconds},
        {"bytesPerSecond", &s->bytes_per_second},
        {"requests", &s->requests},
        {"attempt", &attempt},
        {"pid", &pid},
    };
    s->eta_seconds = UINT64_MAX;
    for (size_t i = 0; i < countof(numbers); i++) {
        int r = json_opt_u64(j, numbers[i].key, numbers[i].target, err);
        if (r < 0)
            return r;
    }
    s->listing.known = json_at(j, "listing.seconds") != NULL;
    s->attempt = (unsigned)attempt;
    s->pid = (int)pid;
    return 0;
}

static int read_faults(const json *j, struct hydrate_status *s, struct err *err)
{
    const json *errors = json_at(j, "errors");
    for (size_t i = 0; i < json_count(errors) && s->error_count < HYDRATE_ERRORS_KEPT; i++) {
        int r = read_fault(json_item(errors, i), &s->errors[s->error_count++], err);
        if (r < 0)
            return r;
    }
    s->has_error = json_at(j, "error") != NULL;
    return s->has_error ? read_fault(json_at(j, "error"), &s->error, err) : 0;
}

static int read_all(const json *j, struct hydrate_status *s, struct err *err)
{
    uint64_t version = VERSION;
    int r = json_opt_u64(j, "version", &version, err);
    if (r == 0 && version > VERSION)
        return err_set(err, ERR_UNSUPPORTED, "'%s' has format %llu, and this version reads up to %d",
                       HYDRATE_STATUS_FILE, (unsigned long long)version, VERSION);
    if (r == 0)
        r = read_phase(j, &s->phase, err);
    if (r == 0)
        r = read_text(j, "source", s->source, sizeof s->source, err);
    if (r == 0)
        r = read_text(j, "manifestDigest", s->manifest, sizeof s->manifest, err);
    if (r == 0)
        r = read_numbers(j, s, err);
    if (r == 0)
        r = read_text(j, "listing.lastSkipped", s->listing.last_skipped, sizeof s->listing.last_skipped, err);
    if (r == 0)
        r = read_time(j, "startedAt", &s->started_ns, err);
    s->began_ns = s->started_ns; /* as a version told it that had but this */
    if (r == 0)
        r = read_time(j, "beganAt", &s->began_ns, err);
    if (r == 0)
        r = read_time(j, "updatedAt", &s->updated_ns, err);
    if (r == 0)
        r = read_time(j, "finishedAt", &s->finished_ns, err);
    return r == 0 ? read_faults(j, s, err) : r;
}

int hydrate_status_read(int dir, struct hydrate_status *ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    auto_json j = NULL;
    int r = file_read(dir, HYDRATE_STATUS_FILE, STATUS_BYTES_MAX, &text, &len, err);
    if (r < 0)
        return r;
    auto_mem struct hydrate_status *s = xcalloc(1, sizeof *s);
    r = json_parse((struct str){text, len}, HYDRATE_STATUS_FILE, &j, err);
    if (r == 0)
        r = read_all(j, s, err);
    if (r == -ERR_UNSUPPORTED)
        return r;
    if (r < 0) {
        err->code = ERR_CORRUPT;
        return err_wrap(err, "'%s' is damaged", HYDRATE_STATUS_FILE);
    }
    *ret = *s;
    return 0;
}

bool hydrate_is_alive(int dir)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    auto_fd fd = openat(dir, HYDRATE_LOCK_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
