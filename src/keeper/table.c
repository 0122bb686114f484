/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"
#include <assert.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC "CISTNOD1"

/* FUSE_HAS_RESEND, bit 39, which the headers of Debian 12 lack. */
enum { INIT2_HAS_RESEND = 1 << (39 - 32) };

/* Older and newer mount processes follow each other on one memfd, and find the nodes in the same place. */
static_assert(sizeof(struct table_head) > 27 * 4096 && sizeof(struct table_head) <= 28 * 4096, "the nodes would move");

size_t table_head_bytes(void)
{
    return (sizeof(struct table_head) + 4095) & ~(size_t)4095;
}

size_t table_file_bytes(uint32_t node_room)
{
    return table_head_bytes() + (size_t)node_room * sizeof(struct table_node);
}

bool table_can_resend(const struct table_head *h)
{
    struct {
        struct fuse_in_header header;
        struct fuse_init_in init;
    } request;
    if (h->init_len < sizeof request)
        return false;
    memcpy(&request, h->init, sizeof request);
    return request.init.flags2 & INIT2_HAS_RESEND;
}

uint64_t table_context_hash(const struct wire_msg *mount)
{
    return mount->body.context[0] ? str_hash(str_of(mount->body.context), 0) : 0;
}

int table_create(const struct wire_msg *mount, int *ret_fd, struct err *err)
{
    auto_fd fd = memfd_create("cistern-volume", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot create a memfd");
    if (ftruncate(fd, (off_t)table_file_bytes(NODES_GROWTH)) < 0)
        return err_sys(err, errno, "cannot grow a memfd");
    struct table_head *h = mmap(NULL, table_head_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h == MAP_FAILED)
        return err_sys(err, errno, "cannot map a memfd");
    memcpy(h->magic, MAGIC, sizeof(h->magic));
    h->version = TABLE_VERSION;
    h->node_bytes = sizeof(struct table_node);
    h->node_room = NODES_GROWTH;
    h->node_high = TABLE_ROOT + 1;
    memcpy(h->volume_id, mount->volume_id, sizeof(h->volume_id));
    h->config = mount->body.config;
    h->context_hash = table_context_hash(mount);
    munmap(h, table_head_bytes());
    *ret_fd = take_fd(&fd);
    return 0;
}

static int check_head(const struct table_head *h, uint64_t size, struct err *err)
{
    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0)
        return err_set(err, ERR_CORRUPT, "the volume's memfd does not begin with the magic of a node table");
    if (h->version < TABLE_OLDEST || h->version > TABLE_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "the volume's node table is of version %u; this program reads versions %d to %d", h->version,
                       TABLE_OLDEST, TABLE_VERSION);
    if (h->node_bytes != sizeof(struct table_node) || h->node_room > NODES_MAX ||
        table_file_bytes(h->node_room) > size || h->node_high > h->node_room || h->init_len > INIT_MAX)
        return err_set(err, ERR_CORRUPT, "the volume's node table is corrupt");
    return 0;
}

int table_head_map(int fd, const struct table_head **ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)table_head_bytes())
        return err_set(err, ERR_CORRUPT, "the volume's memfd is too short for a node table");
    void *p = mmap(NULL, table_head_bytes(), PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_sys(err, errno, "cannot map a memfd");
    int r = check_head(p, (uint64_t)st.st_size, err);
    if (r < 0)
        munmap(p, table_head_bytes());
    else
        *ret = p;
    return r;
}

void table_head_unmap(const struct table_head *h)
{
    if (h)
        munmap((void *)(uintptr_t)h, table_head_bytes());
}

static void close_backing(int fuse_fd, int32_t backing)
{
    uint32_t id = (uint32_t)backing;
    if (backing > 0)
        ioctl(fuse_fd, TABLE_BACKING_CLOSE, &id);
}

void table_close_backings(const struct table_head *h, int memfd, int fuse_fd)
{
    size_t size = table_file_bytes(h->node_high);
    char *p = mmap(NULL, size, PROT_READ, MAP_SHARED, memfd, 0);
    if (p == MAP_FAILED)
        return;
    const struct table_node *nodes = (const void *)(p + table_head_bytes());
    for (uint32_t slot = TABLE_ROOT; slot < h->node_high; slot++)
        close_backing(fuse_fd, nodes[slot].backing);
    for (int32_t k = 0; k < INTENTS_MAX; k++) {
        close_backing(fuse_fd, h->intents[k].closing);
        close_backing(fuse_fd, h->backing_high + 1 + k); /* made, and not recorded yet */
    }
    munmap(p, size);
}

struct counts table_counts(int fd)
{
    struct counts c = {0};
    if (pread(fd, &c, sizeof(c), offsetof(struct table_head, counts)) != sizeof(c))
        return (struct counts){0};
    return c;
}
