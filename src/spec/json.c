/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes volume.json: the volume's id and name, then `parameters` and `source`, which has the form of a
 * BucketSource's spec. */
#include "keys.h"
#include "util/clock.h"
#include <stdio.h>

enum { PATH_BYTES_MAX = 96, DEPTH_MAX = 8 };

char *spec_to_json(const struct spec *s)
{
    auto_json j = json_new_object();
    char text[TIME_TEXT_MAX], path[PATH_BYTES_MAX];
    json_set_u64(j, "version", SPEC_VERSION);
    json_set_str(j, "id", str_of(s->id.text));
    json_set_str(j, "name", str_of(s->name));
    json_set_u64(j, "capacityBytes", s->capacity_bytes);
    json_set_str(j, "createdAt", str_of(time_text(s->created_ns, text)));
    json_set_str(j, "backend", str_of(spec_backend_name((enum spec_backend)s->backend)));
    json_set_u64(j, "project", s->project);
    json_set(j, "parameters", json_new_object());
    json_set(j, "source", json_new_object());
    for (size_t i = 0; i < spec_key_count; i++) {
        const struct spec_key *key = &spec_keys[i];
        snprintf(path, sizeof path, "%s.%s", key->is_parameter ? "parameters" : "source", key->name);
        spec_value_write(key, s, j, path);
    }
    return json_text(j, 2);
}

json *spec_retry_json(const struct spec *s)
{
    json *j = json_new_object();
    for (size_t i = 0; i < spec_key_count; i++)
        if (spec_keys[i].change == CHANGE_WITH_SOURCE)
            spec_value_write(&spec_keys[i], s, j, spec_keys[i].name);
    return j;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int unknown(const char *path, struct err *err)
{
    return err_fail(err, ERR_INVALID, CIS_PARAMETER_UNKNOWN, "'%s' is unknown", path);
}

/* Text is a string, a list is an array: Cistern writes no other type. */
static bool is_of_type(const struct spec_key *key, const json *value)
{
    switch (key->type) {
    case TYPE_PATTERNS:
    case TYPE_FLAGS:
    case TYPE_SOURCES:
        return json_kind_of(value) == '[';
    case TYPE_BOOL:
        return json_kind_of(value) == 't';
    case TYPE_COUNT:
    case TYPE_BYTES:
        return json_kind_of(value) == '0';
    default:
        return json_kind_of(value) == '"';
    }
}

/* The sources of fields. Records may have what earlier versions accepted, fields with their only value and URIs:
 * volume.json, and the copy of a BucketSource's spec in a CisternVolume. */
enum section { PARAMETERS, SOURCE, RECORDED_SOURCE };

static bool is_retired(const char *path)
{
    return str_is_any(str_of(path), "maxAge", "layout.controlDir", "export.interval");
}

static int read_field(struct spec *s, const char *path, enum section section, const json *value, struct err *err)
{
    struct str text;
    if (section == RECORDED_SOURCE && is_retired(path))
        return 0;
    const struct spec_key *key = spec_key_find(str_of(path), err);
    if (!key || key->is_parameter != (section == PARAMETERS))
        return unknown(path, err);
    if (!is_of_type(key, value))
        return err_fail(err, ERR_INVALID, CIS_PARAMETER_INVALID, "'%s' has a value of another type", path);
    auto_mem char *written = json_as_str(value, &text) ? NULL : json_text(value, 0);
    if (written)
        text = str_of(written);
    return section == RECORDED_SOURCE ? spec_value_read(key, s, text, err) : spec_value_parse(key, s, text, err);
}

/* Does an object at this path have fields of its own, such as `retry` and `export.select`? */
static bool is_object_path(const char *path)
{
    size_t len = strlen(path);
    for (size_t i = 0; i < spec_key_count; i++)
        if (strncmp(spec_keys[i].name, path, len) == 0 && spec_keys[i].name[len] == '.')
            return true;
    return false;
}

static int read_fields(struct spec *s, const json *object, const char *prefix, enum section section, unsigned depth,
                       struct err *err)
{
    if (depth == DEPTH_MAX || json_kind_of(object) != '{')
        return err_set(err, ERR_INVALID, "'%s' is not an object", prefix[0] ? prefix : "parameters or source");
    for (void *i = json_iter(object); i; i = json_iter_next(object, i)) {
        struct str name = json_iter_key(i);
        char path[PATH_BYTES_MAX];
        int n = snprintf(path, sizeof path, "%s%s%.*s", prefix, prefix[0] ? "." : "", STR_FMT(name));
        if (n >= (int)sizeof path || str_find(name, '.') >= 0)
            return unknown(path, err);
        const json *value = json_iter_value(i);
        int r = json_kind_of(value) == '{' && is_object_path(path)
                    ? read_fields(s, value, path, section, depth + 1, err)
                    : read_field(s, path, section, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int spec_set_source(struct spec *s, const json *source, struct err *err)
{
    return read_fields(s, source, "", SOURCE, 0, err);
}

int spec_set_recorded_source(struct spec *s, const json *source, struct err *err)
{
    return read_fields(s, source, "", RECORDED_SOURCE, 0, err);
}

static int check_members(const json *j, struct err *err)
{
    for (void *i = json_iter(j); i; i = json_iter_next(j, i)) {
        struct str name = json_iter_key(i);
        if (!str_is_any(name, "version", "id", "name", "capacityBytes", "createdAt", "backend", "project", "parameters",
                        "source"))
            return err_set(err, ERR_INVALID, "'%.*s' is unknown", STR_FMT(str_sub(name, 0, 60)));
    }
    return 0;
}

static int read_identity(struct spec *s, const json *j, struct err *err)
{
    struct str id, name, created, backend;
    struct volume_id parsed;
    enum spec_backend b;
    if (json_get_str(j, "id", &id, err) < 0 || json_get_str(j, "name", &name, err) < 0 ||
        json_get_str(j, "createdAt", &created, err) < 0 || json_get_str(j, "backend", &backend, err) < 0 ||
        json_get_u64(j, "capacityBytes", &s->capacity_bytes, err) < 0 ||
        json_get_u64(j, "project", &s->project, err) < 0 || time_parse(created, &s->created_ns, err) < 0 ||
        spec_backend_parse(backend, &b, err) < 0)
        return -(int)err->code;
    if (!volume_id_parse(id, &parsed))
        return err_set(err, ERR_INVALID, "'id' is not a volume id");
    if (name.len == 0 || name.len > SPEC_TEXT_MAX)
        return err_set(err, ERR_INVALID, "'name' is empty or too long");
    if (s->project > UINT32_MAX)
        return err_set(err, ERR_INVALID, "'project' is not a project id");
    if (b == BACKEND_AUTO)
        return err_set(err, ERR_INVALID, "'backend' of a volume is quota or loop");
    if (s->capacity_bytes > UINT64_C(1) << 60)
        return err_set(err, ERR_INVALID, "'capacityBytes' is too large");
    s->id = parsed;
    s->name = str_dup(name);
    s->backend = b;
    return 0;
}

static int read_all(struct spec *s, const json *j, struct err *err)
{
    int r = check_members(j, err);
    if (r == 0)
        r = read_identity(s, j, err);
    if (r == 0)
        r = read_fields(s, json_at(j, "parameters"), "", PARAMETERS, 0, err);
    if (r == 0)
        r = read_fields(s, json_at(j, "source"), "", RECORDED_SOURCE, 0, err);
    return r < 0 ? r : spec_check(s, err);
}

static int corrupt(const char *what, struct err *err)
{
    struct err why = *err;
    return err_fail(err, ERR_CORRUPT, CIS_VOLUME_RECORD_CORRUPT, "%s cannot be read: %.400s", what, why.text);
}

int spec_from_json(struct str text, const char *what, struct spec **ret, struct err *err)
{
    auto_json j = NULL;
    uint64_t version;
    if (json_parse(text, what, &j, err) < 0 || json_get_u64(j, "version", &version, err) < 0)
        return corrupt(what, err);
    if (version != SPEC_VERSION)
        return err_fail(err, ERR_UNSUPPORTED, CIS_VOLUME_RECORD_VERSION,
                        "%s has format %llu, and this version knows up to %d", what, (unsigned long long)version,
                        SPEC_VERSION);
    auto_spec s = spec_new();
    if (read_all(s, j, err) < 0)
        return corrupt(what, err);
    *ret = take(&s);
    return 0;
}
