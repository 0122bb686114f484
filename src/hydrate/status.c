/* SPDX-License-Identifier: Apache-2.0 */
#include "hydrate/status.h"
#include "util/file.h"
#include "util/json_fields.h"

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

/* ---- the record -------------------------------------------------------------------------------------------------- */

#define AT_FAULT(f) .offset = offsetof(struct hydrate_fault, f), .size = sizeof(((struct hydrate_fault *)NULL)->f)
static const struct json_field fault_fields[] = {
    {"object", JSON_BUFFER, .flags = JSON_CUT, AT_FAULT(object)},
    {"code", JSON_CODE, AT_FAULT(code)},
    {"message", JSON_BUFFER, .flags = JSON_CUT | JSON_ALWAYS, AT_FAULT(message)},
    {"attempts", JSON_UINT, .flags = JSON_ALWAYS, AT_FAULT(attempts)},
    {"time", JSON_TIME, AT_FAULT(time_ns)},
};

#define AT(f) .offset = offsetof(struct hydrate_status, f), .size = sizeof(((struct hydrate_status *)NULL)->f)
static const struct json_field fields[] = {
    {"phase", JSON_NAME, .flags = JSON_REQUIRED, AT(phase), JSON_NAMES(phases)},
    {"source", JSON_BUFFER, .flags = JSON_CUT | JSON_ALWAYS, AT(source)},
    {"objectsTotal", JSON_U64, .flags = JSON_ALWAYS, AT(objects_total)},
    {"objectsDone", JSON_U64, .flags = JSON_ALWAYS, AT(objects_done)},
    {"objectsFailed", JSON_U64, .flags = JSON_ALWAYS, AT(objects_failed)},
    {"objectsSizeOnly", JSON_U64, .flags = JSON_ALWAYS, AT(objects_size_only)},
    {"objectsMissing", JSON_U64, .flags = JSON_ALWAYS, AT(objects_missing)},
    {"objectsKept", JSON_U64, .flags = JSON_ALWAYS, AT(objects_kept)},
    {"bytesTotal", JSON_U64, .flags = JSON_ALWAYS, AT(bytes_total)},
    {"bytesDone", JSON_U64, .flags = JSON_ALWAYS, AT(bytes_done)},
    {"bytesPerSecond", JSON_U64, .flags = JSON_ALWAYS, AT(bytes_per_second)},
    {"requests", JSON_U64, .flags = JSON_ALWAYS, AT(requests)},
    {"attempt", JSON_UINT, .flags = JSON_ALWAYS, AT(attempt)},
    {"manifestDigest", JSON_BUFFER, .flags = JSON_CUT, AT(manifest)},
    {"pid", JSON_INT, .flags = JSON_ALWAYS, AT(pid)},
    {"beganAt", JSON_TIME, AT(began_ns)},
    {"startedAt", JSON_TIME, AT(started_ns)},
    {"updatedAt", JSON_TIME, AT(updated_ns)},
    {"finishedAt", JSON_TIME, AT(finished_ns)},
};

static const struct json_field listing_fields[] = {
    {"listing.objectsExcluded", JSON_U64, .flags = JSON_ALWAYS, AT(listing.objects_excluded)},
    {"listing.namesSkipped", JSON_U64, AT(listing.names_skipped)},
    {"listing.lastSkipped", JSON_BUFFER, .flags = JSON_CUT, AT(listing.last_skipped)},
    {"listing.largestObjectBytes", JSON_U64, .flags = JSON_ALWAYS, AT(listing.largest_bytes)},
    {"listing.seconds", JSON_U64, .flags = JSON_ALWAYS, AT(listing.seconds)},
};

static json *fault_json(const struct hydrate_fault *f)
{
    json *j = json_new_object();
    char id[ERR_ID_TEXT_MAX];
    json_fields_write(j, fault_fields, countof(fault_fields), f);
    if (f->id)
        json_set_str(j, "id", str_of(err_id_text(f->id, id)));
    return j;
}

static char *status_text(const struct hydrate_status *s)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", VERSION);
    json_fields_write(j, fields, countof(fields), s);
    if (s->eta_seconds != UINT64_MAX)
        json_set_u64(j, "etaSeconds", s->eta_seconds);
    if (s->listing.known)
        json_fields_write(j, listing_fields, countof(listing_fields), s);
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
    auto_mem char *text = status_text(s);
    return file_swap(dir, HYDRATE_STATUS_FILE, str_of(text), 0644, err);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int read_fault(const json *j, struct hydrate_fault *ret, struct err *err)
{
    struct str id = STR_NULL;
    uint64_t number = 0;
    ret->code = ERR_INTERNAL;
    int r = json_fields_read(j, fault_fields, countof(fault_fields), ret, err);
    if (r == 0)
        r = json_opt_str(j, "id", &id, err);
    if (r == 0 && id.len)
        r = str_to_u64(str_from(id, 3), &number, err);
    ret->id = (enum err_id)number;
    return r;
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
    s->attempt = 1;
    s->eta_seconds = UINT64_MAX;
    if (r == 0)
        r = json_fields_read(j, fields, countof(fields), s, err);
    if (r == 0)
        r = json_opt_u64(j, "etaSeconds", &s->eta_seconds, err);
    if (r == 0)
        r = json_fields_read(j, listing_fields, countof(listing_fields), s, err);
    s->listing.known = json_at(j, "listing.seconds") != NULL;
    if (s->began_ns == 0)
        s->began_ns = s->started_ns; /* an older version wrote no beganAt */
    return r == 0 ? read_faults(j, s, err) : r;
}

int hydrate_status_read(int dir, struct hydrate_status *ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    auto_json j = NULL;
    int r = file_read_state(dir, HYDRATE_STATUS_FILE, STATUS_BYTES_MAX, &text, &len, err);
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
    return file_is_locked(dir, HYDRATE_LOCK_FILE);
}
