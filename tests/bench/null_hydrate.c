/* SPDX-License-Identifier: Apache-2.0 */
/* null_hydrate DIR COUNT BYTES [THREADS]: creates COUNT files of BYTES from memory, a thousand files in a directory. It
 * measures the file system alone. */
#include "util/str.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

enum { THREADS_MAX = 16, FOLDER_FILES = 1000 };

struct job {
    pthread_t thread;
    unsigned first, step;
};

static int root;
static unsigned count;
static size_t len;
static char *bytes;

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void *run(void *arg)
{
    const struct job *j = arg;
    char name[64];
    for (unsigned i = j->first; i < count; i += j->step) {
        snprintf(name, sizeof name, "%u/object-%09u", i / FOLDER_FILES, i);
        int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        must(fd >= 0, name);
        must(write(fd, bytes, len) == (ssize_t)len, "write");
        must(close(fd) == 0, "close");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct job jobs[THREADS_MAX];
    if (argc < 4) {
        fprintf(stderr, "null_hydrate DIR COUNT BYTES [THREADS]\n");
        return 2;
    }
    count = (unsigned)strtoul(argv[2], NULL, 10);
    len = strtoul(argv[3], NULL, 10);
    unsigned threads = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 2;
    must(threads >= 1 && threads <= THREADS_MAX, "1 to 16 threads");
    root = open(argv[1], O_DIRECTORY | O_CLOEXEC);
    must(root >= 0, argv[1]);
    bytes = xcalloc(len, 1);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(i * 31);
    for (unsigned i = 0; i * FOLDER_FILES < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        must(mkdirat(root, name, 0755) == 0, name);
    }
    for (unsigned i = 0; i < threads; i++) {
        jobs[i] = (struct job){.first = i, .step = threads};
        must(pthread_create(&jobs[i].thread, NULL, run, &jobs[i]) == 0, "pthread_create");
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(jobs[i].thread, NULL);
    return 0;
}
