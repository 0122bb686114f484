/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/json_fields.h"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#define IDENTITY "cistern.json"

/* A pool that replaces others lists them, in format 2: a version that ignores the list must not open it. */
enum { VERSION_FIRST = 1, VERSION_REPLACES = 2, IDENTITY_BYTES_MAX = 65536, MEMBERS = 5 };

/* ---- conditions of a new identity -------------------------------------------------------------------------------- */

enum identity_may identity_may_be_made(const struct identity_facts *f)
{
    if (!f->is_blank)
        return IDENTITY_NOT_BLANK;
    if ((f->require_mount || f->is_ephemeral) && !f->is_mounted)
        return IDENTITY_NOT_MOUNTED;
    if (!f->is_asked)
        return IDENTITY_NOT_ASKED;
    if (!f->has_earlier || f->is_given_up)
        return IDENTITY_MAKE;
    return f->is_ephemeral ? IDENTITY_MAKE : IDENTITY_EARLIER;
}

/* ---- checking an open pool --------------------------------------------------------------------------------------- */

int pool_is_here(struct pool *p, struct err *err)
{
    struct stat opened, now;
    if (!p->is_open) {
        pthread_mutex_lock(&p->opening);
        *err = p->why;
        pthread_mutex_unlock(&p->opening);
        return err_wrap(err, "pool '%s' is not here", p->name);
    }
    if (fstat(p->dir, &opened) != 0 || stat(p->path, &now) != 0) {
        err_sys(err, errno, "cannot read the directory '%s'", p->path);
        err->code = ERR_ABSENT;
        return -ERR_ABSENT;
    }
    if (opened.st_dev == now.st_dev && opened.st_ino == now.st_ino)
        return 0;
    return err_fail(err, ERR_ABSENT, CIS_POOL_ABSENT, "the pool's directory at '%s' was replaced", p->path);
}

/* ---- content of a new pool's directory --------------------------------------------------------------------------- */

/* Entries that a new pool's directory may have: those of a fresh file system, and those left by a crash before the
 * identity was written. */
static bool is_harmless(const char *name)
{
    return str_is_any(str_of(name), "lost+found", "lock") || str_starts(str_of(name), STR("." IDENTITY "."));
}

int identity_look_for_content(int dir, const char *path, char ret[NAME_MAX + 1], struct err *err)
{
    auto_dir d = dir_stream(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot read the directory '%s'", path);
    struct dirent *e;
    while ((e = dir_next(d)) != NULL && is_harmless(e->d_name))
        ;
    if (!e && errno)
        return err_sys(err, errno, "cannot read the directory '%s'", path);
    snprintf(ret, NAME_MAX + 1, "%s", e ? e->d_name : "");
    return 0;
}

/* ---- replacement ------------------------------------------------------------------------------------------------- */

bool identity_replaces(const struct pool_identity *i, struct str uuid, bool given_up)
{
    for (size_t k = 0; k < i->earlier_count; k++)
        if (str_eq(uuid, str_of(i->earlier[k].uuid)) && (i->earlier[k].given_up || !given_up))
            return true;
    return false;
}

int identity_add_earlier(struct pool_identity *i, struct str uuid, bool given_up, struct err *err)
{
    if (identity_replaces(i, uuid, given_up))
        return 0;
    struct identity_earlier *e = i->earlier;
    while (e < i->earlier + i->earlier_count && !str_eq(uuid, str_of(e->uuid)))
        e++;
    if (e == i->earlier + IDENTITY_EARLIER_MAX)
        return err_set(err, ERR_NO_SPACE, "pool %s replaces %d others already, which is the maximum", i->uuid,
                       IDENTITY_EARLIER_MAX);
    if (e == i->earlier + i->earlier_count)
        i->earlier_count++;
    snprintf(e->uuid, sizeof e->uuid, "%.*s", STR_FMT(uuid));
    e->given_up |= given_up;
    return 0;
}

/* ---- cistern.json ------------------------------------------------------------------------------------------------ */

#define AT(f) .offset = offsetof(struct identity_earlier, f), .size = sizeof(((struct identity_earlier *)NULL)->f)
static const struct json_field earlier_fields[] = {
    {"uuid", JSON_BUFFER, JSON_REQUIRED | JSON_ALWAYS, AT(uuid)},
    {"givenUp", JSON_BOOL, JSON_REQUIRED | JSON_ALWAYS, AT(given_up)},
};
#undef AT

void identity_make(struct pool_identity *ret)
{
    *ret = (struct pool_identity){0};
    spec_uuid_make(ret->uuid);
    time_text(clock_wall_ns(), ret->created);
}

int identity_write(int dir, const struct pool_options *o, const struct pool_identity *i, struct err *err)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", i->earlier_count ? VERSION_REPLACES : VERSION_FIRST);
    json_set_str(j, "uuid", str_of(i->uuid));
    json_set_str(j, "pool", str_of(o->name));
    json_set_str(j, "node", str_of(o->node));
    json_set_str(j, "createdAt", str_of(i->created));
    if (i->earlier_count)
        json_set(j, "replaces",
                 json_fields_list(earlier_fields, countof(earlier_fields), i->earlier, i->earlier_count,
                                  sizeof i->earlier[0]));
    auto_mem char *text = json_text(j, 2);
    int r = file_replace(dir, IDENTITY, str_of(text), 0644, err);
    return r < 0 ? err_wrap(err, "writing the identity of the pool '%s'", o->path) : 0;
}

static int corrupt(const char *path, struct err *err)
{
    struct err why = *err;
    return err_fail(err, ERR_CORRUPT, CIS_POOL_RECORD_CORRUPT, "the pool's identity '%s/%s' cannot be read: %.300s",
                    path, IDENTITY, why.text);
}

struct words {
    struct str uuid, pool, node, created;
};

static int parse_earlier(const json *j, struct pool_identity *ret, struct err *err)
{
    const json *list = NULL;
    int r = json_opt_list(j, "replaces", &list, err);
    for (size_t k = 0; r == 0 && k < json_count(list); k++) {
        struct identity_earlier e = {0};
        r = json_fields_read(json_item(list, k), earlier_fields, countof(earlier_fields), &e, err);
        if (r == 0 && !spec_uuid_is_valid(str_of(e.uuid)))
            r = err_set(err, ERR_INVALID, "'replaces.%zu' is not %d hexadecimal digits", k, SPEC_UUID_LEN);
        if (r == 0)
            r = identity_add_earlier(ret, str_of(e.uuid), e.given_up, err);
    }
    return r;
}

static int parse(const json *j, uint64_t version, struct words *w, struct pool_identity *ret, struct err *err)
{
    int r =
        json_strings(j, err, {"uuid", &w->uuid}, {"pool", &w->pool}, {"node", &w->node}, {"createdAt", &w->created});
    if (r < 0)
        return r;
    if (!spec_uuid_is_valid(w->uuid))
        return err_set(err, ERR_INVALID, "'uuid' is not %d hexadecimal digits", SPEC_UUID_LEN);
    if (w->created.len >= sizeof ret->created || json_count(j) != MEMBERS + (version == VERSION_REPLACES))
        return err_set(err, ERR_INVALID, "'createdAt' is too long, or the document has unknown members");
    snprintf(ret->uuid, sizeof ret->uuid, "%.*s", STR_FMT(w->uuid));
    snprintf(ret->created, sizeof ret->created, "%.*s", STR_FMT(w->created));
    return version == VERSION_REPLACES ? parse_earlier(j, ret, err) : 0;
}

static int compare(const struct words *w, const struct pool_options *o, struct err *err)
{
    if (!str_eq(w->node, str_of(o->node)))
        return err_fail(err, ERR_CHANGED, CIS_POOL_ABSENT, "pool in '%s' belongs to node '%.*s', not to this node '%s'",
                        o->path, (int)min_u64(w->node.len, 100), w->node.ptr, o->node);
    if (!str_eq(w->pool, str_of(o->name)))
        return err_fail(err, ERR_INVALID, CIS_POOL_NAME_DIFFERS, "pool in '%s' is '%.*s', not '%s'", o->path,
                        (int)min_u64(w->pool.len, 100), w->pool.ptr, o->name);
    return 0;
}

int identity_read(int dir, const struct pool_options *o, struct pool_identity *ret, struct err *err)
{
    auto_mem char *text = NULL;
    auto_json j = NULL;
    struct words w;
    struct pool_identity i = {0};
    uint64_t version;
    size_t len;
    int r = file_read_state(dir, IDENTITY, IDENTITY_BYTES_MAX, &text, &len, err);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? r : err_wrap(err, "opening the pool '%s'", o->path);
    if (json_parse((struct str){text, len}, IDENTITY, &j, err) < 0 || json_get_u64(j, "version", &version, err) < 0)
        return corrupt(o->path, err);
    if (version < VERSION_FIRST || version > VERSION_REPLACES)
        return err_fail(err, ERR_UNSUPPORTED, CIS_POOL_RECORD_VERSION,
                        "the pool in '%s' has format %llu, and this version knows %d", o->path,
                        (unsigned long long)version, VERSION_REPLACES);
    if (parse(j, version, &w, &i, err) < 0)
        return corrupt(o->path, err);
    r = compare(&w, o, err);
    if (r == 0)
        *ret = i;
    return r;
}

/* ---- memory: the pool of a path, in a file of its own, kept apart from its disk ---------------------------------- */

enum { MEMORY_NAME_LEN = 64, MEMORY_VERSION = 1 };

static void memory_name(const char *path, char ret[MEMORY_NAME_LEN])
{
    uint8_t digest[32];
    char hex[17];
    sha256(str_of(path), digest);
    hex_text(digest, 8, hex);
    snprintf(ret, MEMORY_NAME_LEN, "pool-%s.json", hex);
}

/* Version 1 was written without a number at first. */
static int check_version(const json *j, struct err *err)
{
    uint64_t version = MEMORY_VERSION;
    int r = json_opt_u64(j, "version", &version, err);
    if (r < 0 || version <= MEMORY_VERSION)
        return r;
    return err_fail(err, ERR_UNSUPPORTED, CIS_POOL_RECORD_VERSION,
                    "it has format %" PRIu64 ", and this version knows %d", version, MEMORY_VERSION);
}

int memory_read(const char *directory, const char *path, char ret[SPEC_UUID_LEN + 1], struct err *err)
{
    auto_mem char *text = NULL;
    auto_json j = NULL;
    auto_fd dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[MEMORY_NAME_LEN];
    struct str uuid;
    size_t len;
    memory_name(path, name);
    ret[0] = '\0';
    if (dir < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "cannot open the directory '%s'", directory);
    int r = file_read_state(dir, name, IDENTITY_BYTES_MAX, &text, &len, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = json_parse((struct str){text, len}, name, &j, err);
    if (r == 0)
        r = check_version(j, err);
    if (r == 0)
        r = json_get_str(j, "uuid", &uuid, err);
    if (r == 0 && !spec_uuid_is_valid(uuid))
        r = err_set(err, ERR_INVALID, "'uuid' is not %d hexadecimal digits", SPEC_UUID_LEN);
    if (r == -ERR_INVALID || r == -ERR_NOT_FOUND) {
        err->code = ERR_CORRUPT;
        err_advise(err, CIS_POOL_RECORD_CORRUPT);
    }
    if (r < 0)
        return err_wrap(err, "'%s/%s', which names the pool of '%s'", directory, name, path);
    memcpy(ret, uuid.ptr, SPEC_UUID_LEN);
    ret[SPEC_UUID_LEN] = '\0';
    return 0;
}

int memory_write(const char *directory, const char *path, const char *uuid, struct err *err)
{
    char name[MEMORY_NAME_LEN];
    auto_fd dir = -1;
    memory_name(path, name);
    auto_json j = json_new_object();
    json_set_u64(j, "version", MEMORY_VERSION);
    json_set_str(j, "path", str_of(path));
    json_set_str(j, "uuid", str_of(uuid));
    auto_mem char *text = json_text(j, 2);
    int r = dir_make_path(directory, 0700, &dir, err);
    if (r == 0)
        r = file_replace(dir, name, str_of(text), 0600, err);
    return r < 0 ? err_wrap(err, "recording the pool of '%s' in '%s'", path, directory) : 0;
}
