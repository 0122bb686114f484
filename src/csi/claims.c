/* SPDX-License-Identifier: Apache-2.0 */
#include "claims.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define LOCK_FILE "mounts.lock"

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

static int busy(const char *what, struct err *err)
{
    err_set(err, ERR_PENDING, "volume '%s': another call is at work on it", what);
    return err_advise(err, 3011, "ask again");
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
    if (taken || slot == CLAIMS_MAX)
        return busy(key[0] == '/' ? key + 1 : key, err);
    *ret = (struct claim){.claims = c, .slot = slot};
    return 0;
}

int claim_hold(struct claim *c, int dir, const char *path, struct err *err)
{
    struct stat here, there;
    auto_fd file = openat(dir, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return err_sys(err, errno, "cannot open '%s/%s'", path, LOCK_FILE);
    if (flock(file, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? busy(strrchr(path, '/') + 1, err)
                                    : err_sys(err, errno, "cannot lock '%s/%s'", path, LOCK_FILE);
    /* Who held it before may have thrown the volume away. */
    if (fstat(dir, &here) != 0 || stat(path, &there) != 0 || here.st_ino != there.st_ino)
        return err_set(err, ERR_NOT_FOUND, "there is no volume '%s'", strrchr(path, '/') + 1);
    c->file = take_fd(&file);
    return 0;
}

/* Unlocked aloud: a child that another thread is just starting has a copy of the descriptor until its exec. */
static void let_go(struct claim *c)
{
    if (c->file <= 0)
        return;
    flock(c->file, LOCK_UN);
    close(c->file);
    c->file = 0;
}

void claim_give(struct claim *c)
{
    let_go(c);
    if (!c->claims)
        return;
    pthread_mutex_lock(&c->claims->lock);
    c->claims->keys[c->slot][0] = '\0';
    pthread_mutex_unlock(&c->claims->lock);
    c->claims = NULL;
}
