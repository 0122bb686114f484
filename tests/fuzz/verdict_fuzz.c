/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.json: any bytes are a verdict, or an error; and only a file that says so in full says "done". */
#include "export/verdict.h"
#include "fuzz.h"
#include "util/file.h"
#include <fcntl.h>
#include <sys/stat.h>

static char folder_name[] = "/tmp/cistern-fuzz-verdict-XXXXXX";

static void remove_folder(void)
{
    struct err ignored;
    int r = dir_remove(AT_FDCWD, folder_name, &ignored);
    assert(r == 0);
}

static int volume(void)
{
    static int dir = -1;
    if (dir < 0) {
        const char *made = mkdtemp(folder_name);
        assert(made);
        dir = open(folder_name, O_RDONLY | O_DIRECTORY);
        int r = mkdirat(dir, "export", 0700);
        assert(dir >= 0 && r == 0);
        atexit(remove_folder);
    }
    return dir;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err = {0};
    int fd = openat(volume(), "export/verdict.json", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int r = file_write_all(fd, "verdict.json", bytes, len, &err);
    close(fd);
    assert(r == 0);
    struct verdict v;
    if (verdict_read(volume(), &v, &err) < 0) {
        assert(err.code != 0 && err.text[0]);
        return 0;
    }
    assert(v.state != VERDICT_DONE || memmem(bytes, len, "done", 4));
    verdict_done(&v);
    return 0;
}
