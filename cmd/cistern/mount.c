/* SPDX-License-Identifier: Apache-2.0 */
/* cistern mount - Mounts a directory through FUSE, with a keeper of its own. */
#include "cistern.h"
#include "cli/exit.h"
#include "keeper/keeper.h"
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct {
    bool read_only, allow_other, exclusive, foreground;
    const char *passthrough;
    uint64_t capacity, ready_fd;
} flags;

static const struct opt opts[] = {
    {"read-only", 0, OPT_FLAG, &flags.read_only, NULL, "mount read-only"},
    {"allow-other", 0, OPT_FLAG, &flags.allow_other, NULL, "let other users access it, by the files' permissions"},
    {"exclusive", 0, OPT_FLAG, &flags.exclusive, NULL,
     "let the kernel cache names and attributes for a day, not a second; no other program may change DIR"},
    {"passthrough", 0, OPT_TEXT, &flags.passthrough, "WHEN",
     "let the kernel read and write the files directly: auto, on or off (auto)"},
    {"capacity", 0, OPT_BYTES, &flags.capacity, "BYTES", "show at most this size in df (the size of the disk)"},
    {"foreground", 'f', OPT_FLAG, &flags.foreground, NULL, "stay in the foreground; Ctrl-C unmounts"},
    {"ready-fd", 0, OPT_U64, &flags.ready_fd, "N", "write one byte to this descriptor when mounted"},
    {0},
};

static const char usage[] =
    "Usage: cistern mount [flags] DIR MOUNTPOINT\n\n"
    "Mounts the directory DIR at MOUNTPOINT. With Linux 6.9, reads and writes go directly to the files. The mount\n"
    "survives a crash of its process. Unmount it with `umount MOUNTPOINT`.\n\n"
    "  cistern mount ./dataset /mnt/dataset\n"
    "  cistern mount --read-only --allow-other ./dataset /mnt/dataset\n\nFlags:\n";

static const char *const passthrough_names[] = {"auto", "on", "off"}; /* as enum keeper_passthrough */

/* DIR may be a volume: then its data directory is mounted. */
static int find_data(const char *dir, char *ret, struct err *err)
{
    char data[PATH_MAX];
    struct stat st;
    if (!realpath(dir, ret) || stat(ret, &st) != 0)
        return err_sys(err, errno, "mount shows an existing directory: cannot find '%s'", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "mount shows a directory, and '%s' is not a directory: name one", dir);
    int n = snprintf(data, sizeof(data), "%s/volume.json", ret);
    if (n > 0 && n < (int)sizeof(data) && access(data, F_OK) == 0)
        memccpy(ret + strlen(ret), "/data", '\0', PATH_MAX - strlen(ret));
    return 0;
}

static void on_event(const char *what, const char *volume_id, const struct err *why)
{
    if (why)
        log_err(LOG_WARN, what, why, "mount", volume_id, NULL);
    else
        log_event(LOG_INFO, what, "mount", volume_id, NULL);
}

static int mount_here(const char *dir, const char *mount_point)
{
    struct err err = {0};
    char data[PATH_MAX], at[PATH_MAX], id[KEEPER_ID_MAX];
    struct keeper_mount_request m = {.volume_id = id,
                                     .data = data,
                                     .mount_point = at,
                                     .read_only = flags.read_only,
                                     .allow_other = flags.allow_other,
                                     .exclusive = flags.exclusive,
                                     .capacity_bytes = flags.capacity};
    struct keeper_options o = {.alone = &m, .ready_fd = flags.ready_fd ? (int)flags.ready_fd : -1, .event = on_event};
    unsigned passthrough = 0;
    int r = parse_choice("--passthrough", flags.passthrough, passthrough_names, countof(passthrough_names),
                         &passthrough, &err);
    m.passthrough = (enum keeper_passthrough)passthrough;
    if (r == 0)
        r = find_data(dir, data, &err);
    if (r == 0 && !realpath(mount_point, at))
        r = err_sys(&err, errno, "MOUNTPOINT is an existing directory (mkdir makes it): cannot find '%s'", mount_point);
    if (r == 0) {
        snprintf(id, sizeof(id), "cistern-%d", getpid());
        r = keeper_run(&o, &err);
    }
    return r < 0 ? (int)exit_with(&err, globals.json) : EXIT_DONE;
}

/* Text before the byte 0 is for the user; the byte means that the mount is ready. */
static int wait_until_ready(int from, pid_t pid)
{
    char text[512];
    int status = 0;
    for (ssize_t n; (n = read(from, text, sizeof(text))) > 0;) {
        if (memchr(text, '\0', (size_t)n))
            return EXIT_DONE;
        (void)!write(STDERR_FILENO, text, (size_t)n);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_ENVIRONMENT;
}

/* The mount outlives the command: a process in a session of its own serves it, and reports when it is ready. */
static int mount_in_background(const char *dir, const char *mount_point)
{
    struct err err = {0};
    int pipe_fds[2];
    char self[] = "/proc/self/exe", verb[] = "mount", foreground[] = "--foreground", ready[] = "--ready-fd=2";
    char read_only[] = "--read-only", allow_other[] = "--allow-other", exclusive[] = "--exclusive", end[] = "--";
    char passthrough[32], capacity[40], from[PATH_MAX], at[PATH_MAX];
    snprintf(passthrough, sizeof(passthrough), "--passthrough=%s", flags.passthrough ? flags.passthrough : "auto");
    snprintf(capacity, sizeof(capacity), "--capacity=%llu", (unsigned long long)flags.capacity);
    snprintf(from, sizeof(from), "%s", dir);
    snprintf(at, sizeof(at), "%s", mount_point);
    char *argv[16] = {self, verb, foreground, ready, passthrough, capacity};
    size_t n = 6;
    if (flags.read_only)
        argv[n++] = read_only;
    if (flags.allow_other)
        argv[n++] = allow_other;
    if (flags.exclusive)
        argv[n++] = exclusive;
    argv[n++] = end;
    argv[n++] = from;
    argv[n] = at;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        err_sys(&err, errno, "cannot make a pipe");
        return (int)exit_with(&err, globals.json);
    }
    auto_fd ours = pipe_fds[0];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
    int r = posix_spawn(&pid, self, &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    close(pipe_fds[1]);
    if (r != 0) {
        err_sys(&err, r, "cannot start the mount process");
        return (int)exit_with(&err, globals.json);
    }
    return wait_until_ready(ours, pid);
}

int verb_mount(int argc, char **argv)
{
    int r = verb_begin(opts, usage, &argc, argv);
    if (r >= 0)
        return r;
    if (argc != 3) {
        fprintf(stderr, "cistern: mount needs DIR and MOUNTPOINT; see `cistern mount --help`\n");
        return EXIT_USAGE;
    }
    if (strstr(argv[1], "://")) {
        fprintf(stderr, "cistern: mount takes a directory, and '%s' is a URI: first `cistern hydrate %s DIR`\n",
                argv[1], argv[1]);
        return EXIT_USAGE;
    }
    return flags.foreground ? mount_here(argv[1], argv[2]) : mount_in_background(argv[1], argv[2]);
}
