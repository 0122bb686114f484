/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/record.h"
#include "pool/mount.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json_fields.h"
#include "util/log.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20, VERSION = 1 };

void record_done(struct record *r)
{
    free(r->staged);
    free(r->context);
    for (size_t i = 0; i < r->target_count; i++)
        free(r->targets[i].path);
    *r = (struct record){0};
}

bool record_is_staged_at(const struct record *r, const char *staging_path)
{
    size_t len = strlen(staging_path);
    if (!r->staged || strncmp(r->staged, staging_path, len) != 0)
        return false;
    return !r->staged[len] || strcmp(r->staged + len, RECORD_BIND) == 0;
}

struct record_target *record_target(struct record *r, const char *path)
{
    for (size_t i = 0; i < r->target_count; i++)
        if (strcmp(r->targets[i].path, path) == 0)
            return &r->targets[i];
    return NULL;
}

int record_add(struct record *r, const char *path, bool read_only, struct err *err)
{
    struct record_target *t = record_target(r, path);
    if (t) {
        t->read_only = read_only;
        return 0;
    }
    if (r->target_count == RECORD_TARGETS_MAX)
        return err_set(err, ERR_BUSY, "it is published at %d paths, which is the maximum", RECORD_TARGETS_MAX);
    r->targets[r->target_count++] = (struct record_target){.path = str_dup(str_of(path)), .read_only = read_only};
    return 0;
}

void record_remove(struct record *r, const char *path)
{
    struct record_target *t = record_target(r, path);
    if (!t)
        return;
    free(t->path);
    *t = r->targets[--r->target_count];
}

/* Starts from the clock: after a loss of the record, a count from zero could equal that of an old verdict. */
void record_count_write(struct record *r)
{
    r->writes = max_u64(r->writes + 1, (uint64_t)clock_wall_ns());
}

/* ---- file -------------------------------------------------------------------------------------------------------- */

static const char *const stages[] = {[RELEASE_CLOSED] = "closed", [RELEASE_SEALED] = "sealed"};

#define AT(f) .offset = offsetof(struct record, f), .size = sizeof((struct record){0}.f)
static const struct json_field fields[] = {
    {"staged", JSON_TEXT, AT(staged)},
    {"fuse", JSON_BOOL, AT(fuse), .flags = JSON_ALWAYS},
    {"readOnly", JSON_BOOL, AT(read_only), .flags = JSON_ALWAYS},
    {"context", JSON_TEXT, AT(context)},
    {"writes", JSON_U64, AT(writes), .flags = JSON_ALWAYS},
    {"release", JSON_NAME, AT(release), JSON_NAMES(stages)},
    {"unpublished", JSON_I64, AT(unpublished_ns)},
};
#undef AT

#define AT(f) .offset = offsetof(struct record_target, f)
static const struct json_field target_fields[] = {
    {"path", JSON_TEXT, JSON_REQUIRED, AT(path)},
    {"readOnly", JSON_BOOL, JSON_REQUIRED | JSON_ALWAYS, AT(read_only)},
};
#undef AT

static int read_targets(const json *j, struct record *r, struct err *err)
{
    const json *list = json_at(j, "targets");
    for (size_t i = 0; i < json_count(list); i++) {
        struct record_target t = {0};
        int e = json_fields_read(json_item(list, i), target_fields, countof(target_fields), &t, err);
        if (e == 0 && (!t.path || t.path[0] != '/'))
            e = err_set(err, ERR_INVALID, "the path of a target is not absolute");
        if (e == 0)
            e = record_add(r, t.path, t.read_only, err);
        json_fields_clear(target_fields, countof(target_fields), &t);
        if (e < 0)
            return e;
    }
    return 0;
}

static int read_record(const json *j, struct record *r, struct err *err)
{
    uint64_t version = 0; /* the first format stated none */
    bool written = false;
    int e = json_opt_u64(j, "version", &version, err);
    if (e == 0 && version > VERSION)
        return err_set(err, ERR_UNSUPPORTED, "'%s' has format %llu, and this version reads up to %d", RECORD_FILE,
                       (unsigned long long)version, VERSION);
    if (e == 0)
        e = json_get_bool(j, "written", &written, err); /* every format has it */
    if (e == 0)
        e = json_fields_read(j, fields, countof(fields), r, err);
    if (e == 0 && r->staged && r->staged[0] != '/')
        e = err_set(err, ERR_INVALID, "'staged' is not an absolute path");
    if (e < 0)
        return e;
    if (written && !r->writes)
        r->writes = 1; /* older versions did not count, neither here nor in verdicts */
    uint64_t group = UINT64_MAX;
    e = json_opt_u64(j, "group", &group, err);
    r->has_group = group < UINT32_MAX;
    r->group = r->has_group ? (uint32_t)group : 0;
    return e < 0 ? e : read_targets(j, r, err);
}

int record_read(int dir, struct record *ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    int e = file_read_state(dir, RECORD_FILE, FILE_MAX, &text, &len, err);
    if (e == -ERR_NOT_FOUND) {
        *ret = (struct record){.is_new = true};
        return 0;
    }
    if (e < 0)
        return e;
    auto_json j = NULL;
    auto_record r = {0};
    e = json_parse((struct str){text, len}, RECORD_FILE, &j, err);
    if (e == 0)
        e = read_record(j, &r, err);
    if (e == -ERR_UNSUPPORTED)
        return err_advise(err, CIS_MOUNTS_RECORD_VERSION);
    if (e < 0) {
        char why[ERR_TEXT_MAX];
        memcpy(why, err->text, sizeof why);
        return err_fail(err, ERR_CORRUPT, CIS_MOUNTS_RECORD_CORRUPT, "'%s' is corrupt: %.400s", RECORD_FILE, why);
    }
    *ret = take(&r);
    return 0;
}

/* Is the volume certainly empty? A file system that is not mounted hides its content. */
static bool is_seen_empty(const struct volume *v)
{
    auto_fd data = -1;
    if (volume_data(v, &data, ERR_IGNORED) < 0)
        return false;
    auto_dir d = dir_stream(take_fd(&data));
    return d && dir_next(d) == NULL && errno == 0;
}

int64_t record_changed_ns(int dir)
{
    struct stat st;
    return fstatat(dir, RECORD_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 ? time_from_spec(st.st_mtim) : 0;
}

/* Makes a record in place of a `damaged` or missing file. */
static int make_up(const struct volume *v, bool damaged, struct record *ret, struct err *err)
{
    auto_mem char *data = volume_data_path(v), *shown = NULL;
    int e = mount_that_shows(data, v->spec->id.text, &shown, err);
    if (e < 0)
        return e;
    struct record made = {.is_new = !damaged && !shown, .is_lost = shown};
    if (damaged || shown || !is_seen_empty(v))
        record_count_write(&made);
    if (damaged && !shown)
        made.unpublished_ns = record_changed_ns(v->dir);
    if (damaged || shown)
        log_event(LOG_WARN, "the record of a volume is damaged or missing: its mounts are unknown", "volume",
                  v->spec->id.text, "mounted", shown ? shown : "nowhere", NULL);
    *ret = made;
    return 0;
}

int record_of(const struct volume *v, struct record *ret, struct err *err)
{
    auto_record have = {0};
    int e = record_read(v->dir, &have, err);
    if (e == -ERR_CORRUPT || (e == 0 && have.is_new))
        return make_up(v, e < 0, ret, err);
    if (e < 0)
        return e;
    *ret = take(&have);
    return 0;
}

/* Overwrites the file in place. A replacement needs a new block: in a full pool no volume could be unmounted, and so no
 * space freed. False if the text needs another block. One write of a few sectors: after a crash in it the record may be
 * corrupt, which CIS_MOUNTS_RECORD_CORRUPT reports. */
static bool overwrite(int dir, const char *text)
{
    struct stat st;
    auto_fd fd = -1;
    if (file_open_state(dir, RECORD_FILE, O_WRONLY, 0, &fd, ERR_IGNORED) < 0 || fstat(fd, &st) != 0 ||
        strlen(text) > max_u64((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512))
        return false;
    auto_mem char *padded = str_dupf("%-*s", (int)min_u64((uint64_t)st.st_size, FILE_MAX), text);
    return file_pwrite_all(fd, RECORD_FILE, padded, strlen(padded), 0, ERR_IGNORED) == 0 && fsync(fd) == 0;
}

int record_write(int dir, const struct record *r, struct err *err)
{
    auto_json j = json_new_object();
    json_set_u64(j, "version", VERSION);
    json_set_bool(j, "written", r->writes > 0); /* older versions do not read `writes` */
    json_fields_write(j, fields, countof(fields), r);
    if (r->has_group)
        json_set_u64(j, "group", r->group);
    json_set(
        j, "targets",
        json_fields_list(target_fields, countof(target_fields), r->targets, r->target_count, sizeof r->targets[0]));
    auto_mem char *text = json_text(j, 0);
    int replaced = file_replace(dir, RECORD_FILE, str_of(text), 0600, err);
    return replaced == -ERR_NO_SPACE && overwrite(dir, text) ? 0 : replaced;
}
