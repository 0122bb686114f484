/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include <fcntl.h>

#define IDENTITY "cistern.json"

enum { IDENTITY_VERSION = 1, IDENTITY_BYTES_MAX = 65536 };

/* What a folder may hold and still become a pool: a fresh file system's own folder, and what a death of ours before the
 * identity was written leaves. */
static bool is_harmless(const char *name)
{
    static const char *const harmless[] = {"lost+found", "lock"};
    for (size_t i = 0; i < countof(harmless); i++)
        if (strcmp(name, harmless[i]) == 0)
            return true;
    return str_starts(str_of(name), STR("." IDENTITY "."));
}

static int check_empty(int dir, const char *path, struct err *err)
{
    auto_dir d = dir_stream(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot read the folder '%s'", path);
    struct dirent *e;
    while ((e = dir_next(d)) != NULL)
        if (!is_harmless(e->d_name)) {
            err_set(err, ERR_INVALID, "'%s' is no pool, and it is not empty: it holds '%.100s'", path, e->d_name);
            return err_advise(err, 2021, "give the pool an empty folder");
        }
    return errno ? err_sys(err, errno, "cannot read the folder '%s'", path) : 0;
}

static int make_identity(int dir, const struct space_options *o, char ret_uuid[SPEC_UUID_LEN + 1], struct err *err)
{
    if (o->uuid) {
        err_set(err, ERR_CHANGED, "there is no pool in '%s', and pool %s is expected", o->path, o->uuid);
        return err_advise(err, 3001, "the disk was wiped or replaced, or it is not mounted");
    }
    int r = check_empty(dir, o->path, err);
    if (r < 0)
        return r;
    char created[TIME_TEXT_MAX], uuid[SPEC_UUID_LEN + 1];
    spec_uuid_make(uuid);
    auto_json j = json_new_object();
    json_set_u64(j, "version", IDENTITY_VERSION);
    json_set_str(j, "uuid", str_of(uuid));
    json_set_str(j, "pool", str_of(o->name));
    json_set_str(j, "node", str_of(o->node));
    json_set_str(j, "createdAt", str_of(time_text(clock_wall_ns(), created)));
    auto_mem char *text = json_text(j, 2);
    r = file_replace(dir, IDENTITY, str_of(text), 0644, err);
    if (r == 0)
        memcpy(ret_uuid, uuid, sizeof uuid);
    return r < 0 ? err_wrap(err, "making the pool '%s'", o->path) : 0;
}

static int corrupt(const char *path, struct err *err)
{
    struct err why = *err;
    err_set(err, ERR_CORRUPT, "the pool's identity '%s/%s' cannot be read: %.300s", path, IDENTITY, why.text);
    return err_advise(err, 2022, "restore it, or move the pool's content aside");
}

struct identity {
    uint64_t version;
    struct str uuid, pool, node, created;
};

static int parse(const json *j, struct identity *ret, struct err *err)
{
    char id[SPEC_ID_LEN + 1];
    if (json_get_str(j, "uuid", &ret->uuid, err) < 0 || json_get_str(j, "pool", &ret->pool, err) < 0 ||
        json_get_str(j, "node", &ret->node, err) < 0 || json_get_str(j, "createdAt", &ret->created, err) < 0)
        return -(int)err->code;
    /* A UUID is what makes an id of this pool valid. */
    auto_mem char *uuid = str_dup(str_sub(ret->uuid, 0, SPEC_UUID_LEN));
    spec_id_make(uuid, id);
    if (ret->uuid.len != SPEC_UUID_LEN || !spec_id_is_of_pool(str_of(id), uuid))
        return err_set(err, ERR_INVALID, "'uuid' is not %d hexadecimal digits", SPEC_UUID_LEN);
    return json_count(j) == 5 ? 0 : err_set(err, ERR_INVALID, "it has more members than it should");
}

static int compare(const struct identity *i, const struct space_options *o, struct err *err)
{
    if (o->uuid && !str_eq(i->uuid, str_of(o->uuid))) {
        err_set(err, ERR_CHANGED, "the pool in '%s' is %.*s, and %s is expected", o->path, STR_FMT(i->uuid), o->uuid);
        return err_advise(err, 3001, "the disk was replaced: its volumes are not here");
    }
    if (!str_eq(i->node, str_of(o->node))) {
        err_set(err, ERR_CHANGED, "the pool in '%s' belongs to node '%.*s', and this is '%s'", o->path,
                (int)min_u64(i->node.len, 100), i->node.ptr, o->node);
        return err_advise(err, 3001, "the disk came from another node: move its content aside, or give it back");
    }
    if (!str_eq(i->pool, str_of(o->name))) {
        err_set(err, ERR_INVALID, "the pool in '%s' is '%.*s', not '%s'", o->path, (int)min_u64(i->pool.len, 100),
                i->pool.ptr, o->name);
        return err_advise(err, 2026, "two pools have changed their paths, or one its name: put it back");
    }
    return 0;
}

int identity_establish(int dir, const struct space_options *o, char ret_uuid[SPEC_UUID_LEN + 1], struct err *err)
{
    auto_mem char *text = NULL;
    auto_json j = NULL;
    struct identity i;
    size_t len;
    int r = file_read(dir, IDENTITY, IDENTITY_BYTES_MAX, &text, &len, err);
    if (r == -ERR_NOT_FOUND)
        return make_identity(dir, o, ret_uuid, err);
    if (r < 0)
        return err_wrap(err, "opening the pool '%s'", o->path);
    if (json_parse((struct str){text, len}, IDENTITY, &j, err) < 0 || json_get_u64(j, "version", &i.version, err) < 0)
        return corrupt(o->path, err);
    if (i.version != IDENTITY_VERSION) {
        err_set(err, ERR_UNSUPPORTED, "the pool in '%s' has format %llu, and this version knows %d", o->path,
                (unsigned long long)i.version, IDENTITY_VERSION);
        return err_advise(err, 2023, "it was made by a newer cistern: upgrade again");
    }
    if (parse(j, &i, err) < 0)
        return corrupt(o->path, err);
    r = compare(&i, o, err);
    if (r < 0)
        return r;
    memcpy(ret_uuid, i.uuid.ptr, SPEC_UUID_LEN);
    ret_uuid[SPEC_UUID_LEN] = '\0';
    return 0;
}
