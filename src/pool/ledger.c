/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"
#include "util/file.h"
#include <fcntl.h>
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
    return strcmp(((const struct ledger_entry *)a)->volume_id.text, ((const struct ledger_entry *)b)->volume_id.text);
}

struct ledger_entry *ledger_find(const struct ledger *l, const struct volume_id *id)
{
    struct ledger_entry key = {.volume_id = *id};
    return l->count ? bsearch(&key, l->entries, l->count, sizeof key, by_id) : NULL;
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
                             .backend = (enum spec_backend)s->backend,
                             .project = (uint32_t)s->project,
                             .state = state};
    e.volume_id = s->id;
    append(l, e);
}

void ledger_add(struct ledger *l, const struct spec *s, enum ledger_state state)
{
    append_of(l, s, state);
    qsort(l->entries, l->count, sizeof *l->entries, by_id);
}

void ledger_remove(struct ledger *l, const struct volume_id *id)
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

/* A volume whose record cannot be read still has its bytes: the length of the image is its capacity. */
static struct ledger_entry broken_entry(int dir, const struct volume_id *id)
{
    struct ledger_entry e = {
        .volume_id = *id, .name = str_dup(STR("")), .backend = BACKEND_AUTO, .state = LEDGER_BROKEN};
    struct stat st;
    if (fstatat(dir, VOLUME_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        e.backend = BACKEND_LOOP;
        e.capacity_bytes = (uint64_t)st.st_size;
    }
    return e;
}

static void read_volume(struct ledger *l, int parent, const struct volume_id *id, enum ledger_state state)
{
    auto_fd dir = -1;
    auto_spec s = NULL;
    if (dir_open(parent, id->text, &dir, ERR_IGNORED) < 0)
        return;
    if (volume_spec_read(dir, id->text, &s, ERR_IGNORED) < 0 || strcmp(s->id.text, id->text) != 0)
        append(l, broken_entry(dir, id));
    else
        append_of(l, s, state);
}

/* A directory with any other name reserves nothing; the file system counts its bytes as used. */
static int read_directory(struct ledger *l, int directory, enum ledger_state state, struct err *err)
{
    auto_dir d = dir_stream(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!d)
        return err_sys(err, errno, "cannot list the pool's volumes");
    struct dirent *e;
    struct volume_id id;
    while ((e = dir_next(d)) != NULL)
        if (volume_id_parse(str_of(e->d_name), &id))
            read_volume(l, directory, &id, state);
    return errno ? err_sys(err, errno, "cannot list the pool's volumes") : 0;
}

int ledger_read(struct ledger *l, int volumes, int making, struct err *err)
{
    auto_with(ledger_done) struct ledger fresh = {0};
    int r = read_directory(&fresh, volumes, LEDGER_READY, err);
    if (r == 0)
        r = read_directory(&fresh, making, LEDGER_MAKING, err);
    if (r < 0)
        return r;
    if (fresh.count)
        qsort(fresh.entries, fresh.count, sizeof *fresh.entries, by_id);
    ledger_done(l);
    *l = take(&fresh);
    return 0;
}
