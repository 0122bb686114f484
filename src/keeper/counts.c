/* SPDX-License-Identifier: Apache-2.0 */
#include "counts.h"
#include "util/macro.h"
#include <errno.h>
#include <linux/fuse.h>

const double counts_bounds_seconds[COUNTS_BOUNDS + 1] = {0.0001, 0.001, 0.01, 0.1, 1, 0};
static const uint64_t bounds_ns[COUNTS_BOUNDS] = {100000, 1000000, 10000000, 100000000, 1000000000};

const char *counts_op_name(enum counts_op op)
{
    static const char *const names[COUNTS_OPS] = {
        [COUNTS_LOOKUP] = "lookup",   [COUNTS_FORGET] = "forget", [COUNTS_GETATTR] = "getattr",
        [COUNTS_SETATTR] = "setattr", [COUNTS_OPEN] = "open",     [COUNTS_RELEASE] = "release",
        [COUNTS_READ] = "read",       [COUNTS_WRITE] = "write",   [COUNTS_FSYNC] = "fsync",
        [COUNTS_READDIR] = "readdir", [COUNTS_MAKE] = "make",     [COUNTS_REMOVE] = "remove",
        [COUNTS_RENAME] = "rename",   [COUNTS_XATTR] = "xattr",   [COUNTS_STATFS] = "statfs",
        [COUNTS_OTHER] = "other",
    };
    return names[op];
}

static enum counts_op op_of(uint32_t opcode)
{
    static const uint8_t ops[] = {
        [FUSE_LOOKUP] = COUNTS_LOOKUP,       [FUSE_FORGET] = COUNTS_FORGET,   [FUSE_BATCH_FORGET] = COUNTS_FORGET,
        [FUSE_GETATTR] = COUNTS_GETATTR,     [FUSE_SETATTR] = COUNTS_SETATTR, [FUSE_OPEN] = COUNTS_OPEN,
        [FUSE_RELEASE] = COUNTS_RELEASE,     [FUSE_READ] = COUNTS_READ,       [FUSE_WRITE] = COUNTS_WRITE,
        [FUSE_FSYNC] = COUNTS_FSYNC,         [FUSE_FSYNCDIR] = COUNTS_FSYNC,  [FUSE_READDIR] = COUNTS_READDIR,
        [FUSE_READDIRPLUS] = COUNTS_READDIR, [FUSE_MKNOD] = COUNTS_MAKE,      [FUSE_MKDIR] = COUNTS_MAKE,
        [FUSE_CREATE] = COUNTS_MAKE,         [FUSE_TMPFILE] = COUNTS_MAKE,    [FUSE_SYMLINK] = COUNTS_MAKE,
        [FUSE_LINK] = COUNTS_MAKE,           [FUSE_UNLINK] = COUNTS_REMOVE,   [FUSE_RMDIR] = COUNTS_REMOVE,
        [FUSE_RENAME] = COUNTS_RENAME,       [FUSE_RENAME2] = COUNTS_RENAME,  [FUSE_GETXATTR] = COUNTS_XATTR,
        [FUSE_SETXATTR] = COUNTS_XATTR,      [FUSE_LISTXATTR] = COUNTS_XATTR, [FUSE_REMOVEXATTR] = COUNTS_XATTR,
        [FUSE_STATFS] = COUNTS_STATFS,       [52] = COUNTS_GETATTR, /* FUSE_STATX, of Linux 6.6 */
    };
    return opcode < countof(ops) ? (enum counts_op)ops[opcode] : COUNTS_OTHER;
}

static enum counts_result result_of(int error)
{
    bool answered = error == 0 || error == -ENOENT || error == -ENODATA || error == -ENOSYS;
    return answered ? COUNTS_OK : COUNTS_ERROR;
}

static void raise_by(uint64_t *at, uint64_t n)
{
    __atomic_fetch_add(at, n, __ATOMIC_RELAXED);
}

void counts_add(struct counts *c, uint32_t opcode, int error, uint64_t ns)
{
    struct counts_cell *cell = &c->ops[op_of(opcode)][result_of(error)];
    size_t i = 0;
    while (i < COUNTS_BOUNDS && ns > bounds_ns[i])
        i++;
    raise_by(&cell->within[i], 1);
    raise_by(&cell->ns, ns);
}

void counts_add_open(struct counts *c, bool passed)
{
    raise_by(passed ? &c->opens_passed : &c->opens_plain, 1);
}

uint64_t counts_total(const struct counts *c)
{
    uint64_t total = 0;
    for (size_t op = 0; op < COUNTS_OPS; op++)
        for (size_t result = 0; result < COUNTS_RESULTS; result++)
            for (size_t i = 0; i <= COUNTS_BOUNDS; i++)
                total += __atomic_load_n(&c->ops[op][result].within[i], __ATOMIC_RELAXED);
    return total;
}

void counts_sum(struct counts *sum, const struct counts *by, int sign)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)by;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += sign > 0 ? from[i] : -from[i];
}
