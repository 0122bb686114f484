/* SPDX-License-Identifier: Apache-2.0 */
#include "volume_lock.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define LOCK_FILE "mounts.lock"

void volume_locks_init(struct volume_locks *l)
{
    memset(l->keys, 0, sizeof l->keys);
    pthread_mutex_init(&l->lock, NULL);
}

void volume_locks_done(struct volume_locks *l)
{
    pthread_mutex_destroy(&l->lock);
}

/* Under the lock. The slot of `key`, else a free one, else VOLUME_LOCKS_MAX. */
static size_t slot_for(struct volume_locks *l, const char *key, bool *ret_taken)
{
    size_t unused = VOLUME_LOCKS_MAX;
    *ret_taken = false;
    for (size_t i = 0; i < VOLUME_LOCKS_MAX; i++) {
        if (strcmp(l->keys[i], key) == 0) {
            *ret_taken = true;
            return i;
        }
        if (!l->keys[i][0])
            unused = i;
    }
    return unused;
}

static int locked(const char *volume, struct err *err)
{
    return err_fail(err, ERR_PENDING, CIS_VOLUME_LOCKED, "volume '%s': locked: another call is working on it", volume);
}

int volume_lock_take(struct volume_locks *l, const char *key, struct volume_lock *ret, struct err *err)
{
    bool taken;
    if (!key[0] || strlen(key) >= VOLUME_LOCK_KEY_MAX)
        return err_set(err, ERR_INVALID, "'%s': not a valid volume name", key);
    pthread_mutex_lock(&l->lock);
    size_t slot = slot_for(l, key, &taken);
    if (!taken && slot < VOLUME_LOCKS_MAX)
        snprintf(l->keys[slot], VOLUME_LOCK_KEY_MAX, "%s", key);
    pthread_mutex_unlock(&l->lock);
    if (taken || slot == VOLUME_LOCKS_MAX)
        return locked(key[0] == '/' ? key + 1 : key, err);
    *ret = (struct volume_lock){.locks = l, .slot = slot, .file = -1};
    return 0;
}

int volume_lock_file(struct volume_lock *l, int dir, const char *path, struct err *err)
{
    struct stat here, there;
    auto_fd file = -1;
    int r = file_open_state(dir, LOCK_FILE, O_RDWR | O_CREAT, 0600, &file, err);
    if (r < 0)
        return err_wrap(err, "'%s'", path);
    if (flock(file, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? locked(strrchr(path, '/') + 1, err)
                                    : err_sys(err, errno, "cannot lock '%s/%s'", path, LOCK_FILE);
    /* The previous holder of the lock may have moved the volume to the trash. */
    if (fstat(dir, &here) != 0 || stat(path, &there) != 0 || here.st_ino != there.st_ino)
        return err_set(err, ERR_NOT_FOUND, "volume '%s': not found", strrchr(path, '/') + 1);
    l->file = take_fd(&file);
    return 0;
}

void volume_lock_release(struct volume_lock *l)
{
    /* Closing alone would not unlock: a child of another thread has a copy of the descriptor until its exec. */
    if (l->file >= 0)
        flock(l->file, LOCK_UN);
    fd_close(&l->file);
    if (!l->locks)
        return;
    pthread_mutex_lock(&l->locks->lock);
    l->locks->keys[l->slot][0] = '\0';
    pthread_mutex_unlock(&l->locks->lock);
    l->locks = NULL;
}
