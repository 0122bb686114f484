/* SPDX-License-Identifier: Apache-2.0 */
/* What earlier runs left: counted, and looked for where others may have taken it away. */
#include "private.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

bool known_look(const struct hydrate *h, struct str path, struct stat *ret)
{
    char text[PATH_MAX];
    if (path.len == 0 || path.len >= sizeof text)
        return false;
    memcpy(text, path.ptr, path.len);
    text[path.len] = '\0';
    return fstatat(h->target->data, text, ret, AT_SYMLINK_NOFOLLOW) == 0;
}

/* By its kind and size alone: a time is not kept by every file system, and to read it all costs what a fetch costs. */
bool known_is_its(const struct stat *st, struct str path, uint64_t size_bytes)
{
    return S_ISDIR(st->st_mode) ? path.ptr[path.len - 1] == '/'
                                : S_ISREG(st->st_mode) && (uint64_t)st->st_size == size_bytes;
}

static bool is_there(const struct hydrate *h, struct str path, uint64_t size_bytes)
{
    struct stat st;
    return known_look(h, path, &st) && known_is_its(&st, path, size_bytes);
}

/* What is there already needs no room, but counts. */
static void count(struct hydrate *h, uint64_t id, const struct index_entry *e, uint64_t *ours, bool *is_gone)
{
    uint64_t before = h->feed.need_bytes;
    bool whole = journal_is_whole(h->journal, id);
    feed_need(h, e->size_bytes);
    /* A volume belongs to its pod once it is whole, and to nobody before. */
    if (whole && h->target->kind != TARGET_VOLUME && !is_there(h, e->path, e->size_bytes)) {
        journal_unwritten(h->journal, id);
        whole = false;
        *is_gone = true;
    }
    if (whole || journal_has_parts(h->journal, id))
        *ours += h->feed.need_bytes - before;
    if (whole) {
        atomic_fetch_add(&h->objects_done, 1);
        atomic_fetch_add(&h->bytes_done, e->size_bytes);
        h->feed.space_files++;
    }
}

int known_count(struct hydrate *h, struct err *err)
{
    uint64_t ours = 0;
    bool is_gone = false;
    for (uint64_t id = 0; id < index_count(h->index); id++) {
        struct index_entry e;
        int r = index_get(h->index, id, &e, err);
        if (r < 0)
            return r;
        count(h, id, &e, &ours, &is_gone);
        if (id % PLAN_RELEASE_OBJECTS == 0)
            index_release(h->index);
    }
    h->feed.space_bytes += ours;
    return is_gone ? journal_sync(h->journal, err) : 0;
}
