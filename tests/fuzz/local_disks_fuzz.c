/* SPDX-License-Identifier: Apache-2.0 */
/* A disk's fields in /sys, between NULs, with any bytes of its firmware. A disk has the name of its directory, and
 * texts that end. Each member of the plan was selected. */
#include "directory.h"
#include "fuzz.h"
#include "pool/local_disks.h"
#include <sys/stat.h>

static const char *const files[] = {"size", "ro", "device/model", "device/serial"};

static int folder(int at, const char *path)
{
    int r = mkdirat(at, path, 0700);
    assert(r == 0 || errno == EEXIST);
    return at;
}

static void check_plan(const struct local_disk *disks, size_t count)
{
    static const char *const models[] = {"*nvme*", "?"};
    const char *wipe[] = {disks[0].serial};
    const struct local_disks_wanted w = {
        .pool = "p", .models = models, .model_count = 2, .wipe = wipe, .wipe_count = 1};
    struct local_disks_plan plan;
    struct err err = {0};
    int r = local_disks_plan(&w, disks, count, &plan, &err);
    if (r < 0) {
        assert(err.id >= 2040 && err.id <= 2042);
        return;
    }
    for (size_t i = 0; i < plan.count; i++)
        assert(local_disks_match(&w, plan.members[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct local_disk disks[LOCAL_DISKS_MAX];
    struct str rest = fuzz_str(bytes, len), field;
    struct err err = {0};
    size_t count = 0;
    int at = folder(folder(folder(fuzz_folder(), "block"), "block/nvme0n1"), "block/nvme0n1/device");
    for (size_t i = 0; i < countof(files); i++) {
        char path[64];
        snprintf(path, sizeof path, "block/nvme0n1/%s", files[i]);
        fuzz_file(at, path, str_split(&rest, '\0', &field) ? field : STR_NULL);
    }
    int r = local_disks_scan(fuzz_folder_name, disks, &count, &err);
    assert(r == 0 && count == 1 && strcmp(disks[0].name, "nvme0n1") == 0);
    assert(memchr(disks[0].model, '\0', LOCAL_DISK_TEXT_MAX) && memchr(disks[0].serial, '\0', LOCAL_DISK_TEXT_MAX));
    check_plan(disks, count);
    return 0;
}
