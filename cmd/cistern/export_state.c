/* SPDX-License-Identifier: Apache-2.0 */
#include "export_state.h"
#include "pool/volume.h"
#include "util/env.h"
#include "util/file.h"
#include "util/hash.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int export_state_open(struct export_state *s, const char *named, const char *dir, struct err *err)
{
    char path[PATH_MAX], real[PATH_MAX], hex[17];
    uint8_t sum[32];
    const char *home = env_get_directory("HOME"), *base = env_get_directory("XDG_STATE_HOME");
    if (!realpath(dir, real))
        return err_sys(err, errno, "cannot find the directory '%s'", dir);
    if (!named && !base && !home)
        return err_set(err, ERR_INVALID, "neither XDG_STATE_HOME nor HOME is an absolute path: use --state DIR");
    sha256(str_of(real), sum);
    hex_text(sum, 8, hex);
    int n = named  ? snprintf(path, sizeof path, "%s", named)
            : base ? snprintf(path, sizeof path, "%s/cistern/export/%s", base, hex)
                   : snprintf(path, sizeof path, "%s/.local/state/cistern/export/%s", home, hex);
    if (n >= (int)sizeof path)
        return err_set(err, ERR_INVALID, "the path of the state directory is too long");
    s->path = str_dup(str_of(path));
    s->kept_len = path_existing_len(path);
    return dir_make_path(path, 0700, &s->fd, err);
}

void export_state_done(struct export_state *s, bool keep)
{
    if (!keep && s->path && s->kept_len < strlen(s->path)) {
        (void)!dir_remove(s->fd, VOLUME_EXPORT, ERR_IGNORED); /* the user may remove what is left */
        dir_remove_empty(s->path, s->kept_len);
    }
    fd_close(&s->fd);
    free(s->path);
}
