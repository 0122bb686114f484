/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - what newer kernels say on /dev/fuse and the headers of Debian 12 do not know yet. */
#pragma once

#include <linux/fuse.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* Linux 6.9: the kernel's copies of requests that nobody answered come again, with this bit in their id. */
#define KERNEL_NOTIFY_RESEND 7
#define KERNEL_UNIQUE_RESENT (UINT64_C(1) << 63)

/* Linux 6.9: a file below becomes an id that an OPEN may answer with. An O_PATH descriptor will do: the kernel opens
 * the file again for each user, with the user's flags and with the credentials of who asked for the id. */
struct kernel_backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
#define KERNEL_BACKING_OPEN _IOW(229, 1, struct kernel_backing_map)
#define KERNEL_BACKING_CLOSE _IOW(229, 2, uint32_t)
