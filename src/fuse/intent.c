/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

struct intent *intent_find(struct table *t, uint64_t unique)
{
    for (size_t k = 0; k < INTENTS_MAX; k++)
        if (t->head->intents[k].unique == unique)
            return &t->head->intents[k];
    return NULL;
}

/* `unique` last: a record without it is free, whatever else it holds. */
struct intent *intent_begin(struct table *t, size_t hint, uint64_t unique, uint32_t opcode)
{
    struct intent *i = NULL;
    pthread_mutex_lock(&t->lock);
    for (size_t k = 0; k < INTENTS_MAX && !i; k++)
        if (t->head->intents[(hint + k) % INTENTS_MAX].unique == 0)
            i = &t->head->intents[(hint + k) % INTENTS_MAX];
    if (i) {
        i->opcode = opcode;
        i->n_before = i->opened = i->mapping = i->n_counted = i->step.valid = 0;
        i->closing = 0;
        STORED();
        i->unique = unique;
    }
    pthread_mutex_unlock(&t->lock);
    return i;
}

void intent_end(struct intent *i)
{
    STORED();
    i->unique = 0;
}

void intent_sweep(struct table *t)
{
    for (size_t k = 0; k < INTENTS_MAX; k++)
        intent_end(&t->head->intents[k]);
}
