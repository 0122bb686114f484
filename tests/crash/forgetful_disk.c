/* SPDX-License-Identifier: Apache-2.0 */
/* forgetful_disk.c - A disk whose power can be cut, for kernels without a device mapper.
 *   usage: forgetful_disk MOUNTPOINT STABLE_FILE SEED
 *
 * Serves one file, MOUNTPOINT/disk, for a loop device. It starts as a copy of STABLE_FILE, and writes sectors back
 * there only on a flush (FLUSH and FUA of the loop driver). SIGUSR1 cuts the power: a random half of the sectors
 * written since the last flush reaches STABLE_FILE, in no order, and the process ends. SIGKILL loses them all.
 *
 * One thread: a write is never half in the cache. */
#define FUSE_USE_VERSION 317
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECTOR = 512, DISK_INODE = 2, FLUSH_US = 2000 };
static const double attributes_valid_s = 3600; /* nothing here ever changes */

static char *live;      /* STABLE_FILE, with later writes as private pages */
static uint64_t *dirty; /* a bit a sector */
static size_t size_bytes, words;
static int stable_fd;
static struct fuse_session *session;
static volatile sig_atomic_t is_cut;

static void attributes(fuse_ino_t ino, struct stat *ret)
{
    *ret = (struct stat){.st_ino = ino, .st_nlink = 1, .st_mode = S_IFDIR | 0755};
    if (ino == DISK_INODE) {
        ret->st_mode = S_IFREG | 0600;
        ret->st_size = (off_t)size_bytes;
    }
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {
        .ino = DISK_INODE, .attr_timeout = attributes_valid_s, .entry_timeout = attributes_valid_s};
    if (parent != FUSE_ROOT_ID || strcmp(name, "disk") != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    attributes(DISK_INODE, &e.attr);
    fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;
    (void)fi;
    attributes(ino, &st);
    fuse_reply_attr(req, &st, attributes_valid_s);
}

/* Past the page cache of this file: only this process has the disk's cache. */
static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->direct_io = 1;
    fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t at, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    size_t from = (size_t)at < size_bytes ? (size_t)at : size_bytes;
    fuse_reply_buf(req, live + from, len < size_bytes - from ? len : size_bytes - from);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t len, off_t at, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    if ((size_t)at > size_bytes || len > size_bytes - (size_t)at) {
        fuse_reply_err(req, ENOSPC);
        return;
    }
    memcpy(live + at, bytes, len);
    for (size_t s = (size_t)at / SECTOR; s * SECTOR < (size_t)at + len; s++)
        dirty[s / 64] |= UINT64_C(1) << s % 64;
    fuse_reply_write(req, len);
}

/* Every dirty sector with the given chance in 2. */
static bool write_back(unsigned chance)
{
    for (size_t w = 0; w < words; w++)
        for (uint64_t left = dirty[w]; left; left &= left - 1) {
            size_t at = (w * 64 + (size_t)__builtin_ctzll(left)) * SECTOR;
            bool goes = chance == 2 || random() % 2 == 0;
            if (goes && pwrite(stable_fd, live + at, SECTOR, (off_t)at) != SECTOR)
                return false;
        }
    memset(dirty, 0, words * sizeof *dirty);
    return true;
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int only_data, struct fuse_file_info *fi)
{
    (void)ino;
    (void)only_data;
    (void)fi;
    /* As long as an SSD takes: most cuts that hurt fall between a write and the end of its flush. */
    usleep(FLUSH_US);
    fuse_reply_err(req, !is_cut && write_back(2) ? 0 : EIO);
}

static const struct fuse_lowlevel_ops ops = {
    .lookup = op_lookup, .getattr = op_getattr, .open = op_open, .read = op_read, .write = op_write, .fsync = op_fsync};

static void cut(int signal_number)
{
    (void)signal_number;
    is_cut = 1;
    fuse_session_exit(session);
}

static bool open_disk(const char *path)
{
    struct stat st;
    stable_fd = open(path, O_RDWR | O_CLOEXEC);
    if (stable_fd < 0 || fstat(stable_fd, &st) != 0 || st.st_size % SECTOR != 0)
        return false;
    size_bytes = (size_t)st.st_size;
    words = size_bytes / SECTOR / 64 + 1;
    dirty = calloc(words, sizeof *dirty);
    live = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, stable_fd, 0);
    return dirty && live != MAP_FAILED;
}

int main(int argc, char **argv)
{
    char *words_of_fuse[] = {argv[0], NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, words_of_fuse);
    struct sigaction on_cut = {.sa_handler = cut}; /* without SA_RESTART: it ends the wait for a request */
    if (argc != 4) {
        fprintf(stderr, "usage: forgetful_disk MOUNTPOINT STABLE_FILE SEED\n");
        return 2;
    }
    srandom((unsigned)strtoul(argv[3], NULL, 10));
    session = open_disk(argv[2]) ? fuse_session_new(&args, &ops, sizeof ops, NULL) : NULL;
    if (!session || sigaction(SIGUSR1, &on_cut, NULL) != 0 || fuse_session_mount(session, argv[1]) != 0) {
        perror("forgetful_disk");
        return 1;
    }
    fuse_session_loop(session);
    bool kept = !is_cut || write_back(1);
    fuse_session_unmount(session);
    return kept ? 0 : 1;
}
