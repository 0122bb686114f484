/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - a fuzz target without a fuzzer: gives it every file of its corpus, so that what once crashed is tried in
 * each build. */
#include "fuzz.h"
#include "util/file.h"
#include <dirent.h>
#include <fcntl.h>

static int replay(int dir, const char *name)
{
    struct err err;
    char *bytes;
    size_t len;
    if (file_read(dir, name, 64 << 20, &bytes, &len, &err) < 0) {
        fprintf(stderr, "corpus: %s\n", err.text);
        return 1;
    }
    /* A copy of exactly its length: one byte too far is seen by the address sanitizer. */
    uint8_t *exact = xcalloc(len, 1);
    memcpy(exact, bytes, len);
    free(bytes);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    unsigned count = 0;
    int failed = 0;
    if (!d) {
        fprintf(stderr, "corpus: needs a folder\n");
        return 2;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_type == DT_REG) {
            failed |= replay(dirfd(d), e->d_name);
            count++;
        }
    closedir(d);
    printf("corpus: %u inputs passed\n", count);
    return failed || count == 0;
}
