/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the credentials of the mount process: its capabilities, and the user's file-system uid during a request. */
#include "private.h"
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SECBIT_NO_SETUID_FIXUP
#define SECBIT_NO_SETUID_FIXUP 4
#endif

static struct __user_cap_data_struct own_caps[2]; /* of every thread; frozen after fsuid_drop_capabilities */

static int caps_set(const struct __user_cap_data_struct *data)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    return (int)syscall(SYS_capset, &h, data);
}

void fsuid_keep_setid(bool on)
{
    struct __user_cap_data_struct d[2] = {own_caps[0], own_caps[1]};
    if (on)
        d[0].effective |= 1u << CAP_FSETID;
    caps_set(d);
}

/* Changes only the calling thread, so it runs before other threads exist. Drops CAP_SYS_RESOURCE: the kernel opens
 * lower files with our credentials, and the capability would bypass ext4's quota and reserved blocks. */
int fsuid_drop_capabilities(struct err *err)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    if (syscall(SYS_capget, &h, own_caps) < 0)
        return err_sys(err, errno, "cannot read capabilities");
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0) {
        err_sys(err, errno, "cannot keep capabilities when the file-system uid changes");
        return err_advise(err, CIS_CAPABILITIES_MISSING);
    }
    own_caps[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    own_caps[0].effective = own_caps[0].permitted & ~(1u << CAP_FSETID);
    own_caps[0].inheritable = own_caps[1].inheritable = 0;
    own_caps[1].effective = own_caps[1].permitted;
    if (caps_set(own_caps) < 0)
        return err_sys(err, errno, "cannot drop capabilities");
    return 0;
}

struct fsuid_switch fsuid_set(const struct session *s, fuse_req_t req, mode_t mode)
{
    const struct fuse_ctx *c = fuse_req_ctx(req);
    struct fsuid_switch f = {
        .on = true, .uid = c->uid, .gid = s->config->has_group ? s->config->group : c->gid, .setgid = mode & S_ISGID};
    static _Thread_local mode_t mask; /* of this thread; 0 at its start */
    if (mask != c->umask)
        umask(mask = c->umask);
    if (f.gid)
        setfsgid(f.gid);
    if (f.uid)
        setfsuid(f.uid);
    if (f.setgid)
        fsuid_keep_setid(true);
    return f;
}

void fsuid_reset(struct fsuid_switch *f)
{
    if (!f->on)
        return;
    int kept_errno = errno;
    f->on = false;
    if (f->uid)
        setfsuid(0);
    if (f->gid)
        setfsgid(0);
    if (f->setgid)
        fsuid_keep_setid(false);
    errno = kept_errno;
}
