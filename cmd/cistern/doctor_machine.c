/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's half of `cistern doctor`: kernel, privileges, limits, FUSE, pools. */
#include "doctor.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include "volume/space.h"
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

enum {
    FILES_WANTED = 16384,     /* a mount keeps descriptors of what pods have open, hydration those of its parts */
    MEMLOCK_WANTED = 8 << 20, /* io_uring's rings, where a kernel before 5.12 counts them */
    MOUNT_TRIES = 3000,       /* of 10 ms */
};

/* ---- kernel, privileges, limits ---------------------------------------------------------------------------------- */

static void look_at_kernel(void)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    uname(&u);
    if (sscanf(u.release, "%u.%u", &major, &minor) != 2) {
        doctor_say(DOCTOR_WARN, "kernel", "'%s' is no version that is understood", u.release);
        return;
    }
    unsigned version = major * 1000 + minor;
    if (version < 5015)
        doctor_say(DOCTOR_FAIL, "kernel", "Linux %s: 5.15 or later is needed", u.release);
    else if (version < 6009)
        doctor_say(DOCTOR_WARN, "kernel", "Linux %s: volumes work; at the disk's own speed through FUSE from 6.9 on",
                   u.release);
    else
        doctor_say(DOCTOR_PASS, "kernel", "Linux %s", u.release);
}

/* Effective capabilities, as a mask. */
static uint64_t capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &head, data) != 0)
        return 0;
    return (uint64_t)data[1].effective << 32 | data[0].effective;
}

static void look_at_privileges(void)
{
    static const struct {
        unsigned bit;
        const char *name;
        const char *what_for;
    } wanted[] = {
        {CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "to mount volumes and to open files in passthrough"},
        {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "to find files again after a mount process died"},
        {CAP_CHOWN, "CAP_CHOWN", "to create files for a pod's users"},
    };
    uint64_t have = capabilities();
    unsigned missing = 0;
    for (size_t i = 0; i < countof(wanted); i++)
        if (!(have >> wanted[i].bit & 1)) {
            doctor_say(DOCTOR_WARN, "privileges", "%s is missing: it is needed %s, not for `cistern hydrate`",
                       wanted[i].name, wanted[i].what_for);
            missing++;
        }
    if (!missing)
        doctor_say(DOCTOR_PASS, "privileges", "may mount, and act for any user");
}

static void look_at_limits(void)
{
    struct rlimit files, memory;
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &memory);
    if (files.rlim_max < FILES_WANTED)
        doctor_say(DOCTOR_WARN, "descriptors", "at most %" PRIu64 ": raise the limit to %d (LimitNOFILE, ulimit -n)",
                   (uint64_t)files.rlim_max, FILES_WANTED);
    else
        doctor_say(DOCTOR_PASS, "descriptors", "up to %" PRIu64, (uint64_t)files.rlim_max);
    if (memory.rlim_max < MEMLOCK_WANTED)
        doctor_say(DOCTOR_WARN, "memlock", "%" PRIu64 " bytes: io_uring may be refused on older kernels",
                   (uint64_t)memory.rlim_max);
    else
        doctor_say(DOCTOR_PASS, "memlock", "enough");
}

static void look_at_uring(void)
{
    struct io_uring_params p = {0};
    auto_fd fd = (int)syscall(SYS_io_uring_setup, 1, &p);
    if (fd < 0)
        doctor_say(DOCTOR_WARN, "io_uring", "not allowed here (%s): threads write instead, at a little more CPU",
                   errno == ENOSYS ? "the kernel has none" : "seccomp, or kernel.io_uring_disabled");
    else
        doctor_say(DOCTOR_PASS, "io_uring", "allowed");
}

void doctor_machine(void)
{
    look_at_kernel();
    look_at_privileges();
    look_at_limits();
    look_at_uring();
}

/* ---- FUSE -------------------------------------------------------------------------------------------------------- */

/* Runs this program; its exit code, or -1 if it was not done in time or died. What it says is not shown. */
static int run_self(char *const *argv)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int e = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (e != 0)
        return -1;
    for (unsigned i = 0; i < MOUNT_TRIES; i++) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        clock_sleep(10 * NS_PER_MS);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

struct tiny {
    char folder[512]; /* holds data/file and the mount point */
    char data[540];
    char at[540];
};

/* Mounts data/ on at/, reads the file there, and takes the mount away again. */
static bool mount_works(const struct tiny *t, const char *passthrough)
{
    char verb[] = "mount", data[540], at[540], program[] = "cistern", option[32];
    snprintf(data, sizeof data, "%s", t->data);
    snprintf(at, sizeof at, "%s", t->at);
    snprintf(option, sizeof option, "--passthrough=%s", passthrough);
    if (run_self((char *[]){program, verb, option, data, at, NULL}) != 0)
        return false;
    struct err err;
    char *content;
    size_t len;
    auto_fd dir = open(t->at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool read_back = file_read(dir, "file", 100, &content, &len, &err) == 0;
    bool same = read_back && len == 4 && memcmp(content, "tiny", 4) == 0;
    if (read_back)
        free(content);
    close(take_fd(&dir)); /* else the unmount below would be busy */
    umount2(t->at, MNT_DETACH);
    return same;
}

static int make_tiny(const char *backing, struct tiny *t, struct err *err)
{
    snprintf(t->folder, sizeof t->folder, "%s/.cistern-doctor-XXXXXX", backing);
    if (!mkdtemp(t->folder))
        return err_sys(err, errno, "cannot make a folder in '%s'", backing);
    snprintf(t->data, sizeof t->data, "%s/data", t->folder);
    snprintf(t->at, sizeof t->at, "%s/at", t->folder);
    auto_fd data = -1, at = -1;
    int r = dir_make(AT_FDCWD, t->data, 0755, &data, err);
    if (r == 0)
        r = dir_make(AT_FDCWD, t->at, 0755, &at, err);
    if (r == 0)
        r = file_replace(data, "file", STR("tiny"), 0644, err);
    return r;
}

static void try_mounts(const struct tiny *t)
{
    if (mount_works(t, "on"))
        doctor_say(DOCTOR_PASS, "fuse", "a mount works, in passthrough: reads and writes go straight to the disk");
    else if (mount_works(t, "off"))
        doctor_say(DOCTOR_WARN, "fuse",
                   "a mount works, but not in passthrough (Linux 6.9, CAP_SYS_ADMIN, and a file "
                   "system below that is not itself stacked): reads and writes pass a process");
    else
        doctor_say(DOCTOR_FAIL, "fuse",
                   "/dev/fuse is there, but a mount does not work: `cistern mount DIR MOUNTPOINT` "
                   "says why");
}

void doctor_fuse(const char *backing)
{
    struct err err;
    struct tiny t = {0};
    auto_fd fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        err_sys(&err, errno, "cannot open '/dev/fuse'");
        err_advise(&err, 0, "load the module (modprobe fuse), and let the container have the device");
        doctor_say_err(DOCTOR_FAIL, "fuse", &err);
        return;
    }
    if (make_tiny(backing, &t, &err) < 0)
        doctor_say_err(DOCTOR_FAIL, "fuse", &err);
    else
        try_mounts(&t);
    if (t.data[0] && dir_remove(AT_FDCWD, t.folder, &err) < 0)
        doctor_say_err(DOCTOR_WARN, "fuse", &err);
}

#define MEMORY "/var/lib/cistern" /* where the driver remembers pools, unless --state says otherwise */

/* ---- pools ------------------------------------------------------------------------------------------------------- */

/* What cistern.json says, as it is; whether it may say so is the driver's to judge. */
struct claimed {
    struct str uuid, node, pool;
};

static int read_identity(int pool, json **ret, struct claimed *ret_claimed, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    int r = file_read(pool, "cistern.json", 65536, &text, &len, err);
    if (r == 0)
        r = json_parse((struct str){text, len}, "cistern.json", ret, err);
    if (r == 0 && (json_get_str(*ret, "uuid", &ret_claimed->uuid, err) < 0 ||
                   json_get_str(*ret, "node", &ret_claimed->node, err) < 0 ||
                   json_get_str(*ret, "pool", &ret_claimed->pool, err) < 0))
        r = -(int)err->code;
    return r < 0 && r != -ERR_NOT_FOUND ? err_wrap(err, "the pool cannot say who it is") : r;
}

static void look_at_identity(int pool, const struct space_place *place)
{
    struct err err;
    auto_json j = NULL;
    struct claimed c = {0};
    char host[256] = "";
    bool is_new;
    gethostname(host, sizeof host - 1);
    int r = read_identity(pool, &j, &c, &err);
    auto_mem char *node = str_dup(r == 0 ? c.node : str_of(host));
    auto_mem char *name = str_dup(r == 0 ? c.pool : STR("default"));
    struct space_options o = {.path = place->path,
                              .name = name,
                              .node = node,
                              .memory = MEMORY,
                              .require_mount = place->require_mount,
                              .is_ephemeral = place->is_ephemeral};
    if (r == 0 || r == -ERR_NOT_FOUND)
        r = space_examine(&o, &is_new, &err);
    if (r < 0)
        doctor_say_err(DOCTOR_FAIL, "pool", &err);
    else if (is_new)
        doctor_say(DOCTOR_PASS, "pool", "'%s' is no pool yet; it is empty, and cisternd would make it one",
                   place->path);
    else
        doctor_say(strcmp(node, host) == 0 ? DOCTOR_PASS : DOCTOR_WARN, "pool", "'%s' is pool %.*s of node '%s'%s",
                   place->path, STR_FMT(c.uuid), node,
                   strcmp(node, host) == 0 ? "" : ", which is not this host's name: a disk that moved, or --node-id");
}

static void look_at_backend(int pool, const char *path)
{
    struct err err;
    struct disk_facts facts;
    enum disk_backend backend;
    char why[DISK_WHY_MAX];
    int r = disk_probe(pool, &facts, &err);
    if (r == 0)
        r = disk_choose(&facts, DISK_AUTO, &backend, why, &err);
    if (r < 0)
        doctor_say_err(DOCTOR_FAIL, "backend", &err);
    else
        doctor_say(DOCTOR_PASS, "backend", "'%s': %s", path, why);
}

static void look_at_space(int pool, const char *path)
{
    struct statvfs v;
    char free_text[BYTES_TEXT_MAX], total_text[BYTES_TEXT_MAX];
    if (fstatvfs(pool, &v) != 0 || v.f_blocks == 0) {
        doctor_say(DOCTOR_WARN, "space", "'%s' does not say how much it holds", path);
        return;
    }
    uint64_t available = (uint64_t)v.f_bavail * v.f_frsize, total = (uint64_t)v.f_blocks * v.f_frsize;
    uint64_t percent = available * 100 / total;
    bytes_text(available, free_text);
    bytes_text(total, total_text);
    if (percent < 1)
        doctor_say(DOCTOR_FAIL, "space", "'%s' is full: %s of %s are free", path, free_text, total_text);
    else
        doctor_say(percent < 10 ? DOCTOR_WARN : DOCTOR_PASS, "space", "'%s': %s of %s are free", path, free_text,
                   total_text);
}

void doctor_pool(const char *text)
{
    struct err err;
    struct space_place place;
    const char *path = place.path;
    if (space_place_parse(text, &place, &err) < 0) {
        doctor_say_err(DOCTOR_FAIL, "pool", &err);
        return;
    }
    auto_fd pool = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (pool < 0) {
        err_sys(&err, errno, "cannot open the pool '%s'", path);
        doctor_say_err(DOCTOR_FAIL, "pool", &err);
        return;
    }
    look_at_identity(pool, &place);
    look_at_backend(pool, path);
    look_at_space(pool, path);
}
