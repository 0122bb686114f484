/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

void ledger_done(struct ledger *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->entries[i].name);
    free(l->entries);
    *l = (struct ledger){0};
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct ledger_entry *)a)->id, ((const struct ledger_entry *)b)->id);
}

struct ledger_entry *ledger_find(const struct ledger *l, struct str id)
{
    struct ledger_entry key;
    if (id.len != SPEC_ID_LEN || l->count == 0)
        return NULL;
    memcpy(key.id, id.ptr, id.len);
    key.id[id.len] = '\0';
    return bsearch(&key, l->entries, l->count, sizeof key, by_id);
}

struct ledger_entry *ledger_find_name(const struct ledger *l, struct str name)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->entries[i].state != LEDGER_BROKEN && str_eq(str_of(l->entries[i].name), name))
            return &l->entries[i];
    return NULL;
}

static void append(struct ledger *l, struct ledger_entry own_entry)
{
    l->entries = xrealloc(l->entries, l->count + 1, sizeof *l->entries);
    l->entries[l->count++] = own_entry;
}

static void append_of(struct ledger *l, const struct spec *s, enum ledger_state state)
{
    struct ledger_entry e = {.name = str_dup(str_of(s->name)),
                             .capacity_bytes = s->capacity_bytes,
                             .backend = (enum disk_backend)s->backend,
                             .project = (uint32_t)s->project,
                             .state = state};
    memcpy(e.id, s->id, sizeof e.id);
    append(l, e);
}

void ledger_add(struct ledger *l, const struct spec *s, enum ledger_state state)
{
    append_of(l, s, state);
    qsort(l->entries, l->count, sizeof *l->entries, by_id);
}

void ledger_remove(struct ledger *l, struct str id)
{
    struct ledger_entry *e = ledger_find(l, id);
    if (!e)
        return;
    free(e->name);
    size_t behind = l->count - (size_t)(e - l->entries) - 1;
    memmove(e, e + 1, behind * sizeof *e);
    l->count--;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A volume whose record cannot be read still has its bytes: the image's length is what was promised. */
static struct ledger_entry broken_entry(int dir, const char *id)
{
    struct ledger_entry e = {.name = str_dup(STR("")), .backend = DISK_AUTO, .state = LEDGER_BROKEN};
    struct stat st;
    snprintf(e.id, sizeof e.id, "%s", id);
    if (fstatat(dir, VOLUME_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        e.backend = DISK_LOOP;
        e.capacity_bytes = (uint64_t)st.st_size;
    }
    return e;
}

static void read_volume(struct ledger *l, int parent, const char *id, enum ledger_state state)
{
    struct err err;
    auto_fd dir = -1;
    auto_mem char *text = NULL;
    auto_spec s = NULL;
    size_t len;
    if (dir_open(parent, id, &dir, &err) < 0)
        return;
    if (file_read(dir, VOLUME_SPEC, SPEC_JSON_MAX, &text, &len, &err) < 0 ||
        spec_from_json((struct str){text, len}, VOLUME_SPEC, &s, &err) < 0 || strcmp(s->id, id) != 0)
        append(l, broken_entry(dir, id));
    else
        append_of(l, s, state);
}

/* What is no volume's folder is nobody's promise; the file system counts it as used, and that is enough. */
static int read_folder(struct ledger *l, int folder, enum ledger_state state, struct err *err)
{
    auto_dir d = dir_stream(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot list the pool's volumes");
    struct dirent *e;
    while ((e = dir_next(d)) != NULL)
        if (spec_id_is_valid(str_of(e->d_name)))
            read_volume(l, folder, e->d_name, state);
    return errno ? err_sys(err, errno, "cannot list the pool's volumes") : 0;
}

int ledger_read(struct ledger *l, int volumes, int making, struct err *err)
{
    auto_with(ledger_done) struct ledger fresh = {0};
    int r = read_folder(&fresh, volumes, LEDGER_READY, err);
    if (r == 0)
        r = read_folder(&fresh, making, LEDGER_MAKING, err);
    if (r < 0)
        return r;
    if (fresh.count)
        qsort(fresh.entries, fresh.count, sizeof *fresh.entries, by_id);
    ledger_done(l);
    *l = fresh;
    fresh = (struct ledger){0};
    return 0;
}
