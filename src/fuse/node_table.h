/* SPDX-License-Identifier: Apache-2.0 */
/* node_table.h - The nodes and intents of one volume, in its memfd (keeper/table.h). Private to this room.
 *
 * Crash safety is against SIGKILL, which takes all threads at one moment and loses no store: plain stores in program
 * order are enough. A change that needs several stores is a step: written into the intent, marked valid, applied,
 * marked invalid. All this is under one lock, so at most one step is valid at the time of death, and nodes_open applies
 * it again. Hash chains and the free list may be torn: each start rebuilds them.
 *
 * home: any, under .lock, which is held for nanoseconds and never across a system call (growing excepted). */
#pragma once

#include "keeper/table.h"
#include <pthread.h>
#include <stdatomic.h>

struct node_table {
    struct table_head *head; /* the mapped file */
    struct table_node *nodes;
    int fd; /* owned */
    size_t bytes;
    pthread_mutex_t lock;
    uint32_t *chains; /* under .lock: heads of the hash chains */
    uint32_t n_chains;
    uint32_t first_free;
    uint32_t n_nodes;
};

/* Maps the file, applies the step that a death interrupted, rebuilds the chains. own_fd is closed by nodes_close. */
must_check int nodes_open(int own_fd, struct node_table **ret, struct err *err);
void nodes_close(struct node_table *t);
DEFINE_AUTO(node_table, struct node_table, nodes_close)
#define auto_node_table auto_with(auto_clean_node_table) struct node_table *

/* ---- nodes: 0 or -errno, for a reply to the kernel --------------------------------------------------------------- */

/* A copy of the node; -ESTALE for an unknown id. */
int nodes_get(struct node_table *t, uint64_t id, struct table_node *ret);

/* The node with this handle, 0 if the kernel does not know it. */
uint64_t nodes_find(struct node_table *t, const struct table_handle *h);

/* The lookup counts that a dead process made for a request, and which of them this process has used again. */
struct count_reuse {
    uint32_t n; /* 0: the request is new, no dead process had it */
    bool used[COUNTED_MAX];
};

/* Raises the lookup count by one, on behalf of the intent, making the node if need be. A count that an earlier run of
 * the same request made is used instead. `ret` (may be NULL) is the node afterwards. */
int nodes_count(struct node_table *t, struct table_intent *i, struct count_reuse *c, const struct table_handle *h,
                uint64_t *ret_id, struct table_node *ret);

/* A node whose count an earlier run made and this one did not use, or 0: the caller lowers it. */
uint64_t nodes_unused_count(struct node_table *t, const struct table_intent *i, struct count_reuse *c);

/* Lowers the lookup count by n. At zero the node is freed: *ret is its last content, with lookups 0. */
void nodes_forget(struct node_table *t, struct table_intent *i, uint64_t id, uint64_t n, struct table_node *ret);

/* Counts an open or a release on behalf of the intent, once. *ret is the node afterwards. */
int nodes_count_open(struct node_table *t, struct table_intent *i, uint64_t id, bool writer, struct table_node *ret);
int nodes_count_release(struct node_table *t, struct table_intent *i, uint64_t id, bool writer, struct table_node *ret);

void nodes_set_flag(struct node_table *t, uint64_t id, enum table_node_flag f, bool on);
void nodes_set_backing(struct node_table *t, uint64_t id, int32_t backing);

/* Moves the backing id from the node into the intent's .closing, if `unused_only` allows it; 0 if it has none. */
int32_t nodes_take_backing(struct node_table *t, struct table_intent *i, uint64_t id, bool unused_only);

/* Whether a node has this backing id. Linear: only for recovery. */
bool nodes_has_backing(struct node_table *t, int32_t backing);

/* The node of a slot (below .node_high) if it has a backing id and no opens, else 0. */
uint64_t nodes_unused_backing(struct node_table *t, uint32_t slot);

/* ---- intents ----------------------------------------------------------------------------------------------------- */

/* The intent of a request that the kernel sent again, or NULL. */
struct table_intent *intent_find(struct node_table *t, uint64_t unique);

/* A free one for this request, preferably at `hint` (the thread's number); NULL when all wait for resent requests. */
struct table_intent *intent_begin(struct node_table *t, size_t hint, uint64_t unique, uint32_t opcode);

/* The request was replied to. */
void intent_end(struct table_intent *i);

/* Every request that was sent again has its reply: the dead process had replied to the rest. */
void intent_sweep(struct node_table *t);

/* Keeps the compiler from moving stores across. */
#define STORE_BARRIER() atomic_signal_fence(memory_order_seq_cst)
