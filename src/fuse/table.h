/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - what must outlive the mount process: the memfd's layout, the nodes, and the intents.
 *
 * The kernel knows files by node ids that we gave it. They live in a memfd that the keeper holds, so that the next
 * mount process answers for them. A node is named by its file handle (name_to_handle_at), never by a path or a
 * descriptor. An id is slot + generation << 32; a generation is used once, so no id ever means a second file.
 *
 * Crash safety is against SIGKILL, which takes all threads at one moment and loses no store: plain stores in program
 * order are enough. What needs several stores is a *step*: its outcome is written into the intent, marked valid, done,
 * marked invalid. All this is under one lock, so at most one step is valid at the time of death, and table_open does it
 * again. Hash chains and the free list are rebuilt at each start and may be torn.
 *
 * home: any, under .lock, which is held for nanoseconds and never across a system call (growing excepted). */
#pragma once

#include "counts.h"
#include "wire.h"
#include <pthread.h>
#include <stdatomic.h>

#ifdef CISTERN_TEST_TABLE
enum { TABLE_VERSION = CISTERN_TEST_TABLE };
#else
enum { TABLE_VERSION = 1 };
#endif

/* A table states the oldest version that reads it. The head may grow at its end without a new version: what an older
 * program did not write there is zero. A change that older programs cannot read comes in two releases: the first reads
 * it (TABLE_VERSION is its newest), the next writes it. So tables of neighbouring versions are read both ways. */
enum {
    TABLE_OLDEST = 1,
    HANDLE_MAX = 32,       /* btrfs 20, XFS and tmpfs 12, ext4 8 */
    INIT_MAX = 1024,       /* the kernel's INIT: 104 bytes on 6.18 */
    INTENTS_MAX = 128,     /* four times the threads: those of the dead wait here for their requests to come again */
    COUNTED_MAX = 192,     /* entries in one READDIRPLUS answer */
    NODES_MAX = 1 << 26,   /* 64 M: 5 GiB of table; more is ENFILE */
    NODES_GROWTH = 1 << 12 /* the file grows by 320 KiB */
};

#define TABLE_ROOT UINT64_C(1)

enum node_flag {
    NODE_DIRTY = 1, /* was open for writing: mappings may still store behind the kernel's attribute cache */
    NODE_GONE = 2,  /* has no name any more: reached by a held descriptor */
    NODE_PLAIN = 4, /* its opens go through us, not through a backing id: one mode an inode at a time */
};

struct handle {
    int32_t type;
    uint8_t len;
    uint8_t bytes[HANDLE_MAX];
};

struct node {
    uint64_t lookups; /* as the kernel counts them; 0: a free slot */
    uint32_t generation;
    uint32_t next; /* hash chain or free list; rebuilt */
    uint32_t opens;
    uint32_t writers; /* of those, the ones open for writing */
    int32_t backing;  /* the kernel's id of the file below; 0: none */
    uint8_t flags;    /* enum node_flag */
    struct handle handle;
};

/* One change of the table, whole or not at all. */
struct step {
    uint32_t valid;
    uint32_t slot;
    uint64_t lookups;
    uint32_t opens, writers;
    uint32_t n_counted;
    uint32_t counted_slot;
    uint32_t opened; /* what .opened of the intent becomes */
    uint32_t generation;
};

enum intent_opened { INTENT_UNOPENED, INTENT_OPENED, INTENT_CLOSED };

/* A request in hand: written before it acts, cleared after it was answered. If its process dies between, the kernel
 * sends the request again (FUSE_NOTIFY_RESEND), and what is written here says what was there before it acted. */
struct intent {
    uint64_t unique; /* 0: free */
    uint32_t opcode;
    uint32_t n_before;
    uint64_t before[2]; /* inode numbers that names led to, 0 for none */
    uint32_t opened;    /* enum intent_opened */
    int32_t closing;    /* a backing id that leaves its node and is about to be closed */
    uint32_t mapping;   /* a backing id is about to be made */
    uint32_t n_counted;
    struct step step;
    uint32_t counted[COUNTED_MAX]; /* slots whose lookup count this request has raised */
};

struct table_head {
    char magic[8];
    uint32_t version;
    uint32_t node_bytes;
    uint32_t node_room; /* slots that the file has */
    uint32_t node_high; /* slots that were ever used */
    uint32_t starts;    /* mount processes so far */
    uint32_t ready;     /* passthrough as negotiated: 0 not yet, 1 no, 2 yes */
    uint64_t nodes;
    uint64_t opens;
    uint64_t root_dev, root_ino; /* of the folder below: another one under its path is not the volume */
    int32_t backing_high;        /* the newest backing id; ids only grow */
    uint32_t test_hits;          /* of the kill point that a test armed */
    uint32_t init_len;
    char init[INIT_MAX];
    char volume_id[KEEPER_ID_MAX];
    struct wire_config config;
    struct intent intents[INTENTS_MAX];
    struct counts counts; /* zeros, where the memfd was made by who did not count yet */
};

struct table {
    struct table_head *head; /* the mapped file */
    struct node *nodes;
    int fd; /* owned */
    size_t bytes;
    pthread_mutex_t lock;
    uint32_t *chains; /* under .lock: heads of the hash chains */
    uint32_t n_chains;
    uint32_t first_free;
    uint32_t n_nodes;
};

/* Makes the memfd with an empty table in it. */
must_check int table_create(const char *volume_id, const struct wire_config *c, int *ret_fd, struct err *err);

/* Maps it, does again the step that a death interrupted, rebuilds the chains. own_fd is closed by table_close. */
must_check int table_open(int own_fd, struct table **ret, struct err *err);
void table_close(struct table *t);
DEFINE_AUTO(table, struct table, table_close)
#define auto_table auto_with(auto_clean_table) struct table *

/* For the keeper: maps the head only, to read. */
must_check int table_peek(int fd, const struct table_head **ret, struct err *err);
void table_unpeek(const struct table_head *h);

/* The counts in a volume's memfd, read without mapping it; zeros if they cannot be. */
struct counts table_counts(int fd);

/* ---- nodes: 0 or -errno, for an answer to the kernel ------------------------------------------------------------- */

/* A copy of what is known; -ESTALE for an id that means nothing. */
int table_get(struct table *t, uint64_t id, struct node *ret);

/* The node with this handle, 0 if the kernel does not know it. */
uint64_t table_find(struct table *t, const struct handle *h);

/* Which of the counts that the dead made for a request the living has used again. */
struct claims {
    uint32_t n; /* how many the dead made; 0 for a request that comes for the first time */
    bool used[COUNTED_MAX];
};

/* Raises the lookup count by one, on behalf of the intent, making the node if need be; a count that an earlier run of
 * the same request made is used instead. `ret` (may be NULL) is the node as it is now. */
int table_count(struct table *t, struct intent *i, struct claims *c, const struct handle *h, uint64_t *ret_id,
                struct node *ret);

/* The id of the node whose count an earlier run made and this one did not use, or 0: to be forgotten. */
uint64_t table_unclaimed(struct table *t, const struct intent *i, struct claims *c);

/* Lowers it by n. At zero the node is gone: *ret is what it was, to close what it held (lookups 0 says that). */
void table_forget(struct table *t, struct intent *i, uint64_t id, uint64_t n, struct node *ret);

/* Counts an open or a release on behalf of the intent, once. *ret is the node afterwards. */
int table_count_open(struct table *t, struct intent *i, uint64_t id, bool writer, struct node *ret);
int table_count_release(struct table *t, struct intent *i, uint64_t id, bool writer, struct node *ret);

void table_set_flag(struct table *t, uint64_t id, enum node_flag f, bool on);
void table_set_backing(struct table *t, uint64_t id, int32_t backing);

/* Takes the backing id off the node if `unused_only` allows it, and into the intent's .closing; 0 if there is none. */
int32_t table_take_backing(struct table *t, struct intent *i, uint64_t id, bool unused_only);

/* Is this backing id a node's? Linear: for what a death left behind. */
bool table_has_backing(struct table *t, int32_t backing);

/* ---- intents ----------------------------------------------------------------------------------------------------- */

/* The intent of a request that came again, or NULL. */
struct intent *intent_find(struct table *t, uint64_t unique);

/* A free one for this request, the one at `hint` (of the caller's thread) if it may be; NULL when all wait for their
 * requests to come again. */
struct intent *intent_begin(struct table *t, size_t hint, uint64_t unique, uint32_t opcode);

/* The request was answered. */
void intent_end(struct intent *i);

/* Every request that was sent again has been answered: what is left was answered by the dead. */
void intent_sweep(struct table *t);

/* Keeps the compiler from moving stores across: what is above is written when what is below is. */
#define STORED() atomic_signal_fence(memory_order_seq_cst)
