/* SPDX-License-Identifier: Apache-2.0 */
/* Which pool is at which path, a file for each path: what a disk that is not mounted cannot say itself. */
#include "pool.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/json.h"
#include <fcntl.h>
#include <stdio.h>

enum { NAME_LEN = 64, BYTES_MAX = 65536 };

static void name_of(const char *path, char ret[NAME_LEN])
{
    uint8_t digest[32];
    char hex[17];
    sha256(str_of(path), digest);
    hex_text(digest, 8, hex);
    snprintf(ret, NAME_LEN, "pool-%s.json", hex);
}

int memory_read(const char *folder, const char *path, char ret[SPEC_UUID_LEN + 1], struct err *err)
{
    auto_mem char *text = NULL;
    auto_json j = NULL;
    auto_fd dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[NAME_LEN];
    struct str uuid;
    size_t len;
    name_of(path, name);
    ret[0] = '\0';
    if (dir < 0)
        return errno == ENOENT ? 0 : err_sys(err, errno, "cannot open the directory '%s'", folder);
    int r = file_read(dir, name, BYTES_MAX, &text, &len, err);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = json_parse((struct str){text, len}, name, &j, err);
    if (r == 0)
        r = json_get_str(j, "uuid", &uuid, err);
    if (r == 0 && !spec_uuid_is_valid(uuid))
        r = err_set(err, ERR_INVALID, "'uuid' is not %d hexadecimal digits", SPEC_UUID_LEN);
    if (r < 0)
        return err_wrap(err, "'%s/%s', which names the pool of '%s'", folder, name, path);
    memcpy(ret, uuid.ptr, SPEC_UUID_LEN);
    ret[SPEC_UUID_LEN] = '\0';
    return 0;
}

int memory_write(const char *folder, const char *path, const char *uuid, struct err *err)
{
    char name[NAME_LEN];
    auto_fd dir = -1;
    name_of(path, name);
    auto_json j = json_new_object();
    json_set_str(j, "path", str_of(path));
    json_set_str(j, "uuid", str_of(uuid));
    auto_mem char *text = json_text(j, 2);
    int r = dir_make_path(folder, 0700, &dir, err);
    if (r == 0)
        r = file_replace(dir, name, str_of(text), 0600, err);
    return r < 0 ? err_wrap(err, "remembering the pool of '%s' in '%s'", path, folder) : 0;
}
