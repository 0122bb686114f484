/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"
#include "pool/pool.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include "util/names.h"
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
    FILES_WANTED = 16384,     /* for files that pods have open, and for parts being fetched */
    MEMLOCK_WANTED = 8 << 20, /* a kernel before 5.12 counts io_uring's rings */
    MOUNT_TRIES = 3000,       /* of 10 ms */
};

/* ---- kernel, privileges, limits ---------------------------------------------------------------------------------- */

static void check_kernel(void)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    uname(&u);
    if (sscanf(u.release, "%u.%u", &major, &minor) != 2) {
        doctor_say(DOCTOR_WARN, "kernel", "'%s': unknown version format", u.release);
        return;
    }
    unsigned version = major * 1000 + minor;
    if (version < 5015)
        doctor_say(DOCTOR_FAIL, "kernel", "Linux %s is too old: install 5.15 or later", u.release);
    else if (version < 6009)
        doctor_say(DOCTOR_WARN, "kernel",
                   "Linux %s: volumes work, but FUSE reaches the speed of the disk only from 6.9 on", u.release);
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

static void check_privileges(void)
{
    static const struct {
        unsigned bit;
        const char *name;
        const char *what_for;
    } wanted[] = {
        {CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "to mount volumes and to open files in passthrough"},
        {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "to reopen files after a mount process crashed"},
        {CAP_CHOWN, "CAP_CHOWN", "to create files for a pod's users"},
    };
    uint64_t have = capabilities();
    unsigned missing = 0;
    for (size_t i = 0; i < countof(wanted); i++)
        if (!(have >> wanted[i].bit & 1)) {
            doctor_say(DOCTOR_WARN, "privileges", "%s is missing: needed %s (not for `cistern hydrate`)",
                       wanted[i].name, wanted[i].what_for);
            missing++;
        }
    if (!missing)
        doctor_say(DOCTOR_PASS, "privileges", "can mount, and act for any user");
}

static void check_limits(void)
{
    struct rlimit files, memory;
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &memory);
    if (files.rlim_max < FILES_WANTED)
        doctor_say(DOCTOR_WARN, "descriptors",
                   "limit of %" PRIu64 " open files: raise it to %d (LimitNOFILE, ulimit -n)", (uint64_t)files.rlim_max,
                   FILES_WANTED);
    else
        doctor_say(DOCTOR_PASS, "descriptors", "up to %" PRIu64, (uint64_t)files.rlim_max);
    if (memory.rlim_max < MEMLOCK_WANTED)
        doctor_say(DOCTOR_WARN, "memlock", "limit of %" PRIu64 " bytes: a kernel before 5.12 may refuse io_uring",
                   (uint64_t)memory.rlim_max);
    else
        doctor_say(DOCTOR_PASS, "memlock", "enough");
}

static void check_uring(void)
{
    struct io_uring_params p = {0};
    auto_fd fd = (int)syscall(SYS_io_uring_setup, 1, &p);
    if (fd < 0)
        doctor_say(DOCTOR_WARN, "io_uring", "unavailable (%s): threads write instead, with slightly more CPU",
                   errno == ENOSYS ? "not in this kernel" : "seccomp, or kernel.io_uring_disabled");
    else
        doctor_say(DOCTOR_PASS, "io_uring", "allowed");
}

void doctor_machine(void)
{
    check_kernel();
    check_privileges();
    check_limits();
    check_uring();
}

/* ---- FUSE -------------------------------------------------------------------------------------------------------- */

/* Runs this program without output. Its exit code, or -1 if it timed out or crashed. */
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

struct test_mount {
    char dir[512]; /* holds data/file and the mount point */
    char data[540];
    char at[540];
};

/* Mounts data/ on at/, reads the file, and unmounts. */
static bool mount_works(const struct test_mount *t, const char *passthrough)
{
    char verb[] = "mount", data[540], at[540], program[] = "cistern", option[32];
    snprintf(data, sizeof data, "%s", t->data);
    snprintf(at, sizeof at, "%s", t->at);
    snprintf(option, sizeof option, "--passthrough=%s", passthrough);
    if (run_self((char *[]){program, verb, option, data, at, NULL}) != 0)
        return false;
    char *content;
    size_t len;
    auto_fd dir = open(t->at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool read_back = file_read(dir, "file", 100, &content, &len, ERR_IGNORED) == 0;
    bool same = read_back && len == 4 && memcmp(content, "test", 4) == 0;
    if (read_back)
        free(content);
    close(take_fd(&dir)); /* it would keep the mount busy */
    umount2(t->at, MNT_DETACH);
    return same;
}

static int make_test_dir(const char *backing, struct test_mount *t, struct err *err)
{
    snprintf(t->dir, sizeof t->dir, "%s/.cistern-doctor-XXXXXX", backing);
    if (!mkdtemp(t->dir))
        return err_sys(err, errno, "cannot make a directory in '%s'", backing);
    snprintf(t->data, sizeof t->data, "%s/data", t->dir);
    snprintf(t->at, sizeof t->at, "%s/at", t->dir);
    auto_fd data = -1, at = -1;
    int r = dir_make(AT_FDCWD, t->data, 0755, &data, err);
    if (r == 0)
        r = dir_make(AT_FDCWD, t->at, 0755, &at, err);
    if (r == 0)
        r = file_replace(data, "file", STR("test"), 0644, err);
    return r;
}

static void try_mounts(const struct test_mount *t)
{
    if (mount_works(t, "on"))
        doctor_say(DOCTOR_PASS, "fuse", "a mount works, with passthrough: reads and writes go directly to the disk");
    else if (mount_works(t, "off"))
        doctor_say(
            DOCTOR_WARN, "fuse",
            "a mount works, but without passthrough: it needs Linux 6.9, CAP_SYS_ADMIN, and a file system that is not "
            "stacked");
    else
        doctor_say(DOCTOR_FAIL, "fuse",
                   "/dev/fuse exists, but a mount failed: run `cistern mount DIR MOUNTPOINT` to see why");
}

void doctor_fuse(const char *backing)
{
    struct err err;
    struct test_mount t = {0};
    auto_fd fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        err_sys(&err, errno, "cannot open '/dev/fuse'");
        err_advise(&err, CIS_FUSE_DEVICE_MISSING);
        doctor_say_err(DOCTOR_FAIL, "fuse", &err);
        return;
    }
    if (make_test_dir(backing, &t, &err) < 0)
        doctor_say_err(DOCTOR_FAIL, "fuse", &err);
    else
        try_mounts(&t);
    if (t.data[0] && dir_remove(AT_FDCWD, t.dir, &err) < 0)
        doctor_say_err(DOCTOR_WARN, "fuse", &err);
}

#define POOL_RECORDS "/var/lib/cistern" /* the driver's records of pools, unless --state names another directory */

/* ---- pools ------------------------------------------------------------------------------------------------------- */

/* The content of cistern.json, not validated: the driver does that. */
struct doctor_identity {
    struct str uuid, node, pool;
};

static int read_identity(int dir, json **ret_json, struct doctor_identity *ret, struct err *err)
{
    auto_mem char *text = NULL;
    size_t len;
    int r = file_read(dir, "cistern.json", 65536, &text, &len, err);
    if (r == 0)
        r = json_parse((struct str){text, len}, "cistern.json", ret_json, err);
    if (r == 0)
        r = json_strings(*ret_json, err, {"uuid", &ret->uuid}, {"node", &ret->node}, {"pool", &ret->pool});
    return r < 0 && r != -ERR_NOT_FOUND ? err_wrap(err, "cannot read the pool's identity") : r;
}

static void check_identity(int dir, const struct pool_place *place)
{
    struct err err;
    auto_json j = NULL;
    struct doctor_identity c = {0};
    char host[256] = "";
    bool is_new;
    gethostname(host, sizeof host - 1);
    int r = read_identity(dir, &j, &c, &err);
    auto_mem char *node = str_dup(r == 0 ? c.node : str_of(host));
    auto_mem char *name = str_dup(r == 0 ? c.pool : STR(NAME_POOL_DEFAULT));
    struct pool_options o = {.path = place->path,
                             .name = name,
                             .node = node,
                             .memory = POOL_RECORDS,
                             .require_mount = place->require_mount,
                             .is_ephemeral = place->is_ephemeral};
    if (r == 0 || r == -ERR_NOT_FOUND)
        r = pool_examine(&o, &is_new, &err);
    if (r < 0)
        doctor_say_err(DOCTOR_FAIL, "pool", &err);
    else if (is_new)
        doctor_say(DOCTOR_PASS, "pool", "'%s' is empty: cisternd will make it a pool", place->path);
    else
        doctor_say(
            strcmp(node, host) == 0 ? DOCTOR_PASS : DOCTOR_WARN, "pool", "'%s' is pool %.*s of node '%s'%s",
            place->path, STR_FMT(c.uuid), node,
            strcmp(node, host) == 0 ? "" : ", which is not this host's name: the disk was moved, or --node-id is set");
}

static void check_backend(int dir, const char *path)
{
    struct err err;
    struct disk_facts facts;
    enum spec_backend backend;
    char why[DISK_WHY_MAX];
    int r = disk_probe(dir, &facts, &err);
    if (r == 0)
        r = disk_choose(&facts, BACKEND_AUTO, &backend, why, &err);
    if (r < 0)
        doctor_say_err(DOCTOR_FAIL, "backend", &err);
    else
        doctor_say(DOCTOR_PASS, "backend", "'%s': %s", path, why);
}

static void check_space(int dir, const char *path)
{
    struct statvfs v;
    char free_text[BYTES_TEXT_MAX], total_text[BYTES_TEXT_MAX];
    if (fstatvfs(dir, &v) != 0 || v.f_blocks == 0) {
        doctor_say(DOCTOR_WARN, "space", "'%s': the file system does not report its size", path);
        return;
    }
    uint64_t available = (uint64_t)v.f_bavail * v.f_frsize, total = (uint64_t)v.f_blocks * v.f_frsize;
    uint64_t percent = available * 100 / total;
    bytes_text(available, free_text);
    bytes_text(total, total_text);
    if (percent < 1)
        doctor_say(DOCTOR_FAIL, "space", "'%s' is full: %s of %s free", path, free_text, total_text);
    else
        doctor_say(percent < 10 ? DOCTOR_WARN : DOCTOR_PASS, "space", "'%s': %s of %s free", path, free_text,
                   total_text);
}

void doctor_pool(const char *text)
{
    struct err err;
    struct pool_place place;
    const char *path = place.path;
    if (pool_place_parse(text, &place, &err) < 0) {
        doctor_say_err(DOCTOR_FAIL, "pool", &err);
        return;
    }
    auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        if (err_sys(&err, errno, "cannot open the pool '%s'", path) == -ERR_NOT_FOUND)
            err_advise(&err, CIS_POOL_DIRECTORY_MISSING);
        doctor_say_err(DOCTOR_FAIL, "pool", &err);
        return;
    }
    check_identity(dir, &place);
    check_backend(dir, path);
    check_space(dir, path);
}
