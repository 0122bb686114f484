/* SPDX-License-Identifier: Apache-2.0 */
/* An object of the catalog: its key in the store, the checksum that it is held against, its end. */
#include "private.h"
#include "util/file.h"
#include <sys/stat.h>

/* ---- key --------------------------------------------------------------------------------------------------------- */

struct str source_sub_path(const struct hydrate_source *s)
{
    struct str sub = str_of(s->sub_path);
    while (sub.len > 0 && sub.ptr[sub.len - 1] == '/')
        sub.len--;
    return sub;
}

static const struct hydrate_source *source_of(const struct hydrate *h, const struct index_entry *e)
{
    return &h->o.sources[e->source & ~SOURCE_SINGLE];
}

struct store *object_store(const struct hydrate *h, const struct index_entry *e)
{
    return source_of(h, e)->store;
}

void object_of_entry(struct hydrate_lane *l, const struct index_entry *e, struct store_object *ret)
{
    const struct hydrate_source *s = source_of(l->h, e);
    struct str base = s->keeps_prefix ? STR_NULL : store_prefix(s->store), sub = source_sub_path(s), path = e->path;
    sbuf_clear(&l->key);
    if (e->source & SOURCE_SINGLE)
        base = str_sub(base, 0, path_directory_len(base));
    sbuf_add(&l->key, base);
    if (base.len > 0 && base.ptr[base.len - 1] != '/')
        sbuf_addc(&l->key, '/');
    sbuf_add(&l->key, sub.len ? str_from(path, sub.len + 1) : path);
    *ret = (struct store_object){.key = sbuf_str(&l->key),
                                 .size_bytes = e->size_bytes,
                                 .mtime_ns = e->mtime_ns,
                                 .generation = e->generation,
                                 .etag = e->etag,
                                 .digest = e->digest};
}

/* ---- checksum ---------------------------------------------------------------------------------------------------- */

struct digest digest_wanted(const struct hydrate *h, const struct index_entry *e)
{
    return h->o.verify == HYDRATE_VERIFY_AUTO ? e->digest : (struct digest){.kind = HASH_NONE};
}

struct digest digest_better(const struct digest *listed, const struct digest *answered)
{
    bool better = answered->kind != HASH_NONE && !hash_combines(listed->kind) &&
                  (listed->kind == HASH_NONE || hash_combines(answered->kind));
    return better ? *answered : *listed;
}

int mismatch_set(struct err *err, const struct digest *want, const struct digest *got)
{
    auto_sbuf a = SBUF(128), b = SBUF(128);
    digest_add_hex(want, &a);
    digest_add_hex(got, &b);
    return err_fail(err, ERR_CORRUPT, CIS_CHECKSUM_MISMATCH,
                    "%s of the received bytes is %s, the store reports %s, after two attempts", hash_name(want->kind),
                    b.ptr, a.ptr);
}

/* ---- end of an object -------------------------------------------------------------------------------------------- */

int times_set(int fd, int64_t mtime_ns, struct err *err)
{
    struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, time_to_spec(mtime_ns)};
    if (mtime_ns == 0 || futimens(fd, t) == 0)
        return 0;
    /* Some file systems keep no such time. Any other failure is one of the file: the next run recognises it by its
     * time. */
    bool is_unsupported = errno == EPERM || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS;
    return is_unsupported ? 0 : err_sys(err, errno, "cannot set a file's time");
}

struct target_file object_file(const struct index_entry *e)
{
    return (struct target_file){.size_bytes = e->size_bytes, .mtime_ns = e->mtime_ns};
}

void object_completed(struct hydrate *h, uint64_t id)
{
    journal_written(h->journal, id);
    atomic_fetch_add(&h->progress.objects_done, 1);
}
