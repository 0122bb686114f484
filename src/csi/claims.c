/* SPDX-License-Identifier: Apache-2.0 */
#include "claims.h"
#include <stdio.h>

void claims_init(struct claims *c)
{
    memset(c->keys, 0, sizeof c->keys);
    pthread_mutex_init(&c->lock, NULL);
}

void claims_done(struct claims *c)
{
    pthread_mutex_destroy(&c->lock);
}

/* Under the lock. The slot of `key`, else a free one, else CLAIMS_MAX. */
static size_t slot_for(struct claims *c, const char *key, bool *ret_taken)
{
    size_t unused = CLAIMS_MAX;
    *ret_taken = false;
    for (size_t i = 0; i < CLAIMS_MAX; i++) {
        if (strcmp(c->keys[i], key) == 0) {
            *ret_taken = true;
            return i;
        }
        if (!c->keys[i][0])
            unused = i;
    }
    return unused;
}

int claim_take(struct claims *c, const char *key, struct claim *ret, struct err *err)
{
    bool taken;
    if (!key[0] || strlen(key) >= CLAIM_KEY_MAX)
        return err_set(err, ERR_INVALID, "'%s' is no name of a volume", key);
    pthread_mutex_lock(&c->lock);
    size_t slot = slot_for(c, key, &taken);
    if (!taken && slot < CLAIMS_MAX)
        snprintf(c->keys[slot], CLAIM_KEY_MAX, "%s", key);
    pthread_mutex_unlock(&c->lock);
    if (taken || slot == CLAIMS_MAX) {
        err_set(err, ERR_PENDING, "volume '%s': another call is at work on it", key[0] == '/' ? key + 1 : key);
        return err_advise(err, 3011, "ask again");
    }
    *ret = (struct claim){.claims = c, .slot = slot};
    return 0;
}

void claim_give(struct claim *c)
{
    if (!c->claims)
        return;
    pthread_mutex_lock(&c->claims->lock);
    c->claims->keys[c->slot][0] = '\0';
    pthread_mutex_unlock(&c->claims->lock);
    c->claims = NULL;
}
