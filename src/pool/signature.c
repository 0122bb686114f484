/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/signature.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

/* ---- the array's superblock, metadata 1.2: at 4 KiB; little-endian (<linux/raid/md_p.h>) ------------------------- */

enum {
    MD_AT = 4096,
    MD_SET_UUID = 16,
    MD_SET_NAME = 32,
    MD_SET_NAME_LEN = 32,
    MD_LEVEL = 72,
    MD_DISKS = 92,
    MD_END = 96
};
#define MD_MAGIC 0xa92b4efcU
#define XFS_MAGIC "XFSB"

static uint32_t le32(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* "host:name" or "name", ended by NUL or the field's end. */
static void read_set_name(const char *field, char *ret)
{
    struct str s = {field, strnlen(field, MD_SET_NAME_LEN)};
    const char *colon = s.len ? memchr(s.ptr, ':', s.len) : NULL;
    if (colon)
        s = str_from(s, (size_t)(colon + 1 - s.ptr));
    for (size_t i = 0; i < s.len; i++)
        ret[i] = s.ptr[i] >= 0x20 && s.ptr[i] < 0x7f ? s.ptr[i] : '?';
    ret[s.len] = '\0';
}

static bool read_member(struct str head, struct signature *ret)
{
    if (head.len < MD_AT + MD_END || le32(head.ptr + MD_AT) != MD_MAGIC || le32(head.ptr + MD_AT + 4) != 1)
        return false;
    const char *sb = head.ptr + MD_AT;
    *ret = (struct signature){.kind = SIGNATURE_MEMBER, .what = "a member of an array"};
    ret->level = (int32_t)le32(sb + MD_LEVEL);
    ret->raid_disks = le32(sb + MD_DISKS);
    read_set_name(sb + MD_SET_NAME, ret->set_name);
    hex_text(sb + MD_SET_UUID, 16, ret->set_uuid);
    return true;
}

/* ---- the others, for the sentence -------------------------------------------------------------------------------- */

struct magic {
    size_t at;
    const char *bytes;
    size_t len;
    const char *what;
};

#define MAGIC(at, bytes, what)                                                                                         \
    {                                                                                                                  \
        at, bytes, sizeof(bytes) - 1, what                                                                             \
    }
static const struct magic magics[] = {
    MAGIC(1080, "\x53\xef", "an ext file system"),
    MAGIC(0x10040, "_BHRfS_M", "btrfs"),
    MAGIC(512, "LABELONE", "LVM"),
    MAGIC(536, "LVM2 001", "LVM"),
    MAGIC(0, "LUKS\xba\xbe", "an encrypted disk"),
    MAGIC(4086, "SWAPSPACE2", "swap"),
    MAGIC(4096, "\xfc\x4e\x2b\xa9", "a member of an array"),
    MAGIC(0, "\xfc\x4e\x2b\xa9", "a member of an array"),
    MAGIC(512, "EFI PART", "a partition table"),
    MAGIC(4096, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcache"),
    MAGIC(0, "bluestore block device", "a Ceph OSD"),
    MAGIC(3, "NTFS    ", "NTFS"),
    MAGIC(510, "\x55\xaa", "a partition table"), /* last: others have these bytes too */
};

static bool is_zero(struct str s)
{
    return s.len == 0 || (s.ptr[0] == 0 && memcmp(s.ptr, s.ptr + 1, s.len - 1) == 0);
}

static const char *name_of(struct str head)
{
    for (size_t i = 0; i < countof(magics); i++) {
        const struct magic *m = &magics[i];
        if (head.len >= m->at + m->len && memcmp(head.ptr + m->at, m->bytes, m->len) == 0)
            return m->what;
    }
    return "unknown data";
}

void signature_read(struct str head, struct str tail, struct signature *ret)
{
    if (is_zero(head) && is_zero(tail))
        *ret = (struct signature){.kind = SIGNATURE_BLANK, .what = "nothing"};
    else if (read_member(head, ret))
        return;
    else if (str_starts(head, STR(XFS_MAGIC)))
        *ret = (struct signature){.kind = SIGNATURE_XFS, .what = "XFS"};
    else
        *ret = (struct signature){.kind = SIGNATURE_OTHER, .what = name_of(head)};
}

/* ---- XFS: its superblock is the first sector; big-endian --------------------------------------------------------- */

enum { XFS_SECTOR_AT = 102, XFS_SECTOR_MIN = 512, XFS_SECTOR_MAX = 32768 };

unsigned signature_xfs_sector(struct str head)
{
    if (head.len < SIGNATURE_XFS_BYTES || !str_starts(head, STR(XFS_MAGIC)))
        return 0;
    const unsigned char *b = (const unsigned char *)head.ptr + XFS_SECTOR_AT;
    unsigned bytes = (unsigned)b[0] << 8 | b[1];
    bool is_one = bytes >= XFS_SECTOR_MIN && bytes <= XFS_SECTOR_MAX && (bytes & (bytes - 1)) == 0;
    return is_one ? bytes : 0;
}

/* ---- of a device ------------------------------------------------------------------------------------------------- */

static int read_at(int fd, const char *path, char *buf, uint64_t at, size_t len, struct err *err)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, buf + done, len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "cannot read '%s'", path);
        if (n == 0)
            return err_set(err, ERR_IO, "'%s' ends before its size", path);
        done += (size_t)n;
    }
    return 0;
}

int signature_of_device(const char *path, struct signature *ret, struct err *err)
{
    uint64_t bytes = 0;
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "cannot open '%s'", path);
    if (ioctl(fd, BLKGETSIZE64, &bytes) != 0)
        return err_sys(err, errno, "cannot read the size of '%s'", path);
    size_t len = (size_t)min_u64(bytes, SIGNATURE_BYTES);
    auto_mem char *head = xcalloc(1, len + 1);
    auto_mem char *tail = xcalloc(1, len + 1);
    int r = read_at(fd, path, head, 0, len, err);
    if (r == 0)
        r = read_at(fd, path, tail, bytes - len, len, err);
    if (r == 0)
        signature_read((struct str){head, len}, (struct str){tail, len}, ret);
    return r;
}
