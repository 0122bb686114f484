/* SPDX-License-Identifier: Apache-2.0 */
/* volume.json: who the volume is, then `parameters` and `source`, the latter shaped as a BucketSource's spec. */
#include "spec_keys.h"
#include "util/clock.h"
#include "volume/disk.h"
#include <stdio.h>

enum { PATH_BYTES_MAX = 96, DEPTH_MAX = 8 };

char *spec_to_json(const struct spec *s)
{
    auto_json j = json_new_object();
    char text[TIME_TEXT_MAX], path[PATH_BYTES_MAX];
    json_set_u64(j, "version", SPEC_VERSION);
    json_set_str(j, "id", str_of(s->id));
    json_set_str(j, "name", str_of(s->name));
    json_set_u64(j, "capacityBytes", s->capacity_bytes);
    json_set_str(j, "createdAt", str_of(time_text(s->created_ns, text)));
    json_set_str(j, "backend", str_of(disk_backend_name((enum disk_backend)s->backend)));
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
    err_set(err, ERR_INVALID, "'%s' is not known here", path);
    return err_advise(err, 2001, "leave it out, or upgrade cistern");
}

/* Text is a string, a list is an array: a file that says otherwise was not written by us. */
static bool is_of_type(const struct spec_key *key, const json *value)
{
    struct str text;
    auto_mem char *written = json_text(value, 0);
    switch (key->type) {
    case TYPE_LATER: /* refused for what it is */
        return true;
    case TYPE_PATTERNS:
    case TYPE_FLAGS:
    case TYPE_SOURCES:
        return written[0] == '[';
    case TYPE_BOOL:
        return strcmp(written, "true") == 0 || strcmp(written, "false") == 0;
    case TYPE_COUNT:
    case TYPE_BYTES:
        return written[0] >= '0' && written[0] <= '9';
    default:
        return json_as_str(value, &text);
    }
}

static int read_key(struct spec *s, const char *path, bool is_parameter, const json *value, struct err *err)
{
    struct str text;
    const struct spec_key *key = spec_key_find(str_of(path), err);
    if (!key || key->is_parameter != is_parameter)
        return unknown(path, err);
    if (!is_of_type(key, value)) {
        err_set(err, ERR_INVALID, "'%s' has a value of another type", path);
        return err_advise(err, 2002, "see its description: kubectl explain bucketsource.spec");
    }
    if (json_as_str(value, &text))
        return spec_value_parse(key, s, text, err);
    auto_mem char *written = json_text(value, 0);
    return spec_value_parse(key, s, str_of(written), err);
}

/* Does an object under this path hold fields of its own, such as `retry` and `export.select`? */
static bool is_folder(const char *path)
{
    size_t len = strlen(path);
    for (size_t i = 0; i < spec_key_count; i++)
        if (strncmp(spec_keys[i].name, path, len) == 0 && spec_keys[i].name[len] == '.')
            return true;
    return false;
}

/* `retry: {}` says nothing. */
static bool is_empty_object(const json *value)
{
    auto_mem char *written = json_text(value, 0);
    return strcmp(written, "{}") == 0;
}

static int read_fields(struct spec *s, const json *object, const char *prefix, bool is_parameter, unsigned depth,
                       struct err *err)
{
    auto_mem char *written = object ? json_text(object, 0) : NULL;
    if (depth == DEPTH_MAX || !written || written[0] != '{')
        return err_set(err, ERR_INVALID, "'%s' is not an object", prefix[0] ? prefix : "parameters or source");
    for (void *i = json_iter(object); i; i = json_iter_next(object, i)) {
        struct str name = json_iter_key(i);
        char path[PATH_BYTES_MAX];
        int n = snprintf(path, sizeof path, "%s%s%.*s", prefix, prefix[0] ? "." : "", STR_FMT(name));
        if (n >= (int)sizeof path || str_find(name, '.') >= 0)
            return unknown(path, err);
        const json *value = json_iter_value(i);
        bool is_object = json_iter(value) != NULL || is_empty_object(value);
        int r = is_object && is_folder(path) ? read_fields(s, value, path, is_parameter, depth + 1, err)
                                             : read_key(s, path, is_parameter, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int spec_set_source(struct spec *s, const json *source, struct err *err)
{
    return read_fields(s, source, "", false, 0, err);
}

static int check_members(const json *j, struct err *err)
{
    static const char *const known[] = {"version", "id",      "name",       "capacityBytes", "createdAt",
                                        "backend", "project", "parameters", "source"};
    for (void *i = json_iter(j); i; i = json_iter_next(j, i)) {
        bool found = false;
        for (size_t k = 0; k < countof(known); k++)
            found |= str_eq(json_iter_key(i), str_of(known[k]));
        if (!found)
            return err_set(err, ERR_INVALID, "'%.*s' is not known here", (int)min_u64(json_iter_key(i).len, 60),
                           json_iter_key(i).ptr);
    }
    return 0;
}

static int read_identity(struct spec *s, const json *j, struct err *err)
{
    struct str id, name, created, backend;
    enum disk_backend b;
    if (json_get_str(j, "id", &id, err) < 0 || json_get_str(j, "name", &name, err) < 0 ||
        json_get_str(j, "createdAt", &created, err) < 0 || json_get_str(j, "backend", &backend, err) < 0 ||
        json_get_u64(j, "capacityBytes", &s->capacity_bytes, err) < 0 ||
        json_get_u64(j, "project", &s->project, err) < 0 || time_parse(created, &s->created_ns, err) < 0 ||
        disk_backend_parse(backend, &b, err) < 0)
        return -(int)err->code;
    if (!spec_id_is_valid(id))
        return err_set(err, ERR_INVALID, "'id' is no volume id");
    if (name.len == 0 || name.len > SPEC_TEXT_MAX)
        return err_set(err, ERR_INVALID, "'name' is empty or too long");
    if (s->project > UINT32_MAX)
        return err_set(err, ERR_INVALID, "'project' is no project id");
    memcpy(s->id, id.ptr, id.len);
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
        r = read_fields(s, json_at(j, "parameters"), "", true, 0, err);
    if (r == 0)
        r = read_fields(s, json_at(j, "source"), "", false, 0, err);
    return r < 0 ? r : spec_check(s, err);
}

static int corrupt(const char *what, struct err *err)
{
    struct err why = *err;
    err_set(err, ERR_CORRUPT, "%s cannot be read: %.400s", what, why.text);
    return err_advise(err, 2005,
                      "it was written by something else, or the disk lost it; the volume's data is untouched");
}

int spec_from_json(struct str text, const char *what, struct spec **ret, struct err *err)
{
    auto_json j = NULL;
    uint64_t version;
    if (json_parse(text, what, &j, err) < 0 || json_get_u64(j, "version", &version, err) < 0)
        return corrupt(what, err);
    if (version != SPEC_VERSION) {
        err_set(err, ERR_UNSUPPORTED, "%s has format %llu, and this version knows up to %d", what,
                (unsigned long long)version, SPEC_VERSION);
        return err_advise(err, 2004, "the volume was made by a newer cistern: upgrade again");
    }
    auto_spec s = spec_new();
    if (read_all(s, j, err) < 0)
        return corrupt(what, err);
    *ret = take(&s);
    return 0;
}
