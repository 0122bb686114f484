/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's retry policy may change while its Job runs: its file is read again when it was replaced. */
#include "cistern.h"
#include "pool/volume.h"
#include "util/clock.h"
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static bool was_replaced(struct retry_reload *f)
{
    struct stat st;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" VOLUME_SPEC, f->volume_dir);
    if (stat(path, &st) != 0 ||
        (st.st_ino == f->inode && st.st_mtim.tv_sec == f->changed.tv_sec && st.st_mtim.tv_nsec == f->changed.tv_nsec))
        return false;
    f->inode = st.st_ino;
    f->changed = st.st_mtim;
    return true;
}

void retry_reload(struct retry_reload *f, struct store *const *stores, size_t count)
{
    struct err ignored;
    struct volume *v;
    uint64_t now_ns = clock_now_ns();
    if (!f->volume_dir || now_ns - f->looked_ns < NS_PER_SECOND)
        return;
    f->looked_ns = now_ns;
    if (!was_replaced(f) || volume_open(f->volume_dir, &v, &ignored) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        store_set_retry(stores[i], store_retry_of(&v->spec->source));
    volume_close(v);
}
