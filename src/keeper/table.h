/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - The format of a volume's memfd: what must outlive a mount process. The keeper holds the memfd and reads its
 * head; the mount process changes the rest (fuse/node_table.h).
 *
 * A node is a file or directory that the kernel knows by an id that we gave it: slot + generation << 32. A generation
 * is used once, so an id never means a second file. A node names its file by file handle (name_to_handle_at), never by
 * a path or a descriptor. */
#pragma once

#include "counts.h"
#include "wire.h"
#include <sys/ioctl.h>

#ifdef CISTERN_TEST_TABLE
enum { TABLE_VERSION = CISTERN_TEST_TABLE };
#else
enum { TABLE_VERSION = 1 };
#endif

/* A table states the oldest version that reads it. The head may grow at its end without a new version: fields that an
 * older program did not write are zero. A change that older programs cannot read comes in two releases: the first reads
 * it (TABLE_VERSION is its newest), the next writes it. So tables of neighbouring versions are read both ways. */
enum {
    TABLE_OLDEST = 1,
    HANDLE_MAX = 32,       /* btrfs 20, XFS and tmpfs 12, ext4 8 */
    INIT_MAX = 1024,       /* the kernel's INIT: 104 bytes on 6.18 */
    INTENTS_MAX = 128,     /* four times the threads: intents of a dead process wait here for their requests */
    COUNTED_MAX = 192,     /* entries in one READDIRPLUS reply */
    NODES_MAX = 1 << 26,   /* 64 M: 5 GiB of table; more is ENFILE */
    NODES_GROWTH = 1 << 12 /* the file grows by 320 KiB */
};

#define TABLE_ROOT UINT64_C(1)

enum table_node_flag {
    NODE_DIRTY = 1, /* was opened with O_RDWR: a mapping may store unseen by the kernel's attribute cache */
    NODE_GONE = 2,  /* has no name any more: only a held descriptor reaches it */
    NODE_PLAIN = 4, /* opened without a backing id: the kernel allows one mode an inode at a time */
};

struct table_handle {
    int32_t type;
    uint8_t len;
    uint8_t bytes[HANDLE_MAX];
};

struct table_node {
    uint64_t lookups; /* as the kernel counts them; 0: a free slot */
    uint32_t generation;
    uint32_t next; /* hash chain or free list; rebuilt at each start */
    uint32_t opens;
    uint32_t writers; /* opens for writing */
    int32_t backing;  /* the kernel's id of the lower file; 0: none */
    uint8_t flags;    /* enum table_node_flag */
    struct table_handle handle;
};

/* One change of the table, applied whole or not at all. */
struct table_step {
    uint32_t valid;
    uint32_t slot;
    uint64_t lookups;
    uint32_t opens, writers;
    uint32_t n_counted;
    uint32_t counted_slot;
    uint32_t opened; /* the next .opened of the intent */
    uint32_t generation;
};

enum intent_opened { INTENT_UNOPENED, INTENT_OPENED, INTENT_CLOSED };

/* A request in progress: written before it acts, cleared after its reply. If the process dies between, the kernel sends
 * the request again (FUSE_NOTIFY_RESEND), and the intent says what existed before it acted. */
struct table_intent {
    uint64_t unique; /* 0: free */
    uint32_t opcode;
    uint32_t n_before;
    uint64_t before[2]; /* inode numbers of the names, 0 for none */
    uint32_t opened;    /* enum intent_opened */
    int32_t closing;    /* a backing id that left its node and is about to be closed */
    uint32_t mapping;   /* a backing id is about to be made */
    uint32_t n_counted;
    struct table_step step;
    uint32_t counted[COUNTED_MAX]; /* slots whose lookup count this request has raised */
};

struct table_head {
    char magic[8];
    uint32_t version;
    uint32_t node_bytes;
    uint32_t node_room; /* slots in the file */
    uint32_t node_high; /* slots that were ever used */
    uint32_t starts;    /* mount processes so far */
    uint32_t ready;     /* passthrough as negotiated: 0 not yet, 1 no, 2 yes */
    uint64_t nodes;
    uint64_t opens;
    uint64_t root_dev, root_ino; /* of the lower directory: another one at its path is not the volume */
    int32_t backing_high;        /* the newest backing id; ids only grow */
    uint32_t test_hits;          /* of the kill point that a test armed */
    uint32_t init_len;
    char init[INIT_MAX];
    char volume_id[KEEPER_ID_MAX];
    struct wire_config config;
    struct table_intent intents[INTENTS_MAX];
    struct counts counts;  /* zeros in a memfd from before counts existed */
    uint64_t context_hash; /* table_context_hash() of the mount */
};

/* Bytes of the head, in whole pages. Bytes of a file with this number of slots. */
size_t table_head_bytes(void);
size_t table_file_bytes(uint32_t node_room);

/* Whether the kernel can send requests again that a dead mount process had read (Linux 6.9), by its INIT request.
 * Without that, no new process can go on. False before the INIT. */
bool table_can_resend(const struct table_head *h);

/* Different for mounts with different SELinux contexts: the head has no space for the text. 0: none. */
uint64_t table_context_hash(const struct wire_msg *mount);

/* Makes the memfd with an empty table in it, for a WIRE_MOUNT. */
must_check int table_create(const struct wire_msg *mount, int *ret_fd, struct err *err);

/* Maps the head for reading, checked: ERR_CORRUPT, or ERR_UNSUPPORTED for a version that this program cannot read. */
must_check int table_head_map(int fd, const struct table_head **ret, struct err *err);
void table_head_unmap(const struct table_head *h); /* NULL is fine */

#define TABLE_BACKING_CLOSE _IOW(229, 2, uint32_t) /* Linux 6.9 */

/* Closes all backing ids of a volume without a mount process. Else the kernel keeps their lower files open while any
 * process uses the mount, and the disk below cannot be unmounted. */
void table_close_backings(const struct table_head *h, int memfd, int fuse_fd);

/* The counts in a memfd, read without mapping it; zeros if they cannot be read. */
struct counts table_counts(int fd);
