/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - fuzz targets without a fuzzer: `fuzz-replay xml CORPUS` gives one target every file of its corpus, so that
 * an input that once crashed is tried in each build. */
#include "fuzz.h"
#include "util/file.h"
#include <dirent.h>
#include <fcntl.h>

#define FUZZ(name) int fuzz_##name(const uint8_t *bytes, size_t len);
#include "fuzz_targets.inc"
#undef FUZZ

#define FUZZ(name) {#name, fuzz_##name},
static const struct target {
    const char *name;
    int (*run)(const uint8_t *bytes, size_t len);
} targets[] = {
#include "fuzz_targets.inc"
};

static const struct target *target_named(const char *name)
{
    for (size_t i = 0; i < countof(targets); i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}

static int replay(const struct target *target, int dir, const char *name)
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
    target->run(exact, len);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    const struct target *target = argc == 3 ? target_named(argv[1]) : NULL;
    DIR *d = target ? opendir(argv[2]) : NULL;
    unsigned count = 0;
    int failed = 0;
    if (!d) {
        fprintf(stderr, "usage: fuzz-replay TARGET CORPUS\n");
        return 2;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_type == DT_REG) {
            failed |= replay(target, dirfd(d), e->d_name);
            count++;
        }
    closedir(d);
    printf("corpus: %u inputs passed\n", count);
    return failed || count == 0;
}
