/* SPDX-License-Identifier: Apache-2.0 */
#include "denials.h"

/* Five waits between the attempts, the first up to a quarter of a second and each up to twice the one before: 4 s on
 * average, enough for a renewed session and most delayed grants. After LASTING_MAX requests that stayed denied, later
 * denials are final. */
enum { ATTEMPTS_MAX = 6, LASTING_MAX = 32 };

void denials_note_success(struct store_denials *r, enum store_op op)
{
    uint32_t bit = UINT32_C(1) << op;
    if (!(atomic_load_explicit(&r->served, memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&r->served, bit, memory_order_relaxed);
}

void denials_note_final(struct store_denials *r)
{
    atomic_fetch_add_explicit(&r->lasting, 1, memory_order_relaxed);
}

unsigned denials_attempts_max(const struct store_denials *r, enum store_op op, bool renewed)
{
    bool is_served = atomic_load_explicit(&r->served, memory_order_relaxed) & (UINT32_C(1) << op);
    if (atomic_load_explicit(&r->lasting, memory_order_relaxed) >= LASTING_MAX)
        return renewed ? 2 : 1;
    if (is_served)
        return ATTEMPTS_MAX;
    /* Of many requests at once, the first may be denied before another succeeds. A listing starts alone. */
    return renewed || op != STORE_OP_LIST ? 2 : 1;
}
