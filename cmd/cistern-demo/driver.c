/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the CSI calls of a provisioner and a kubelet. */
#include "demo.h"
#include "keeper/client.h"
#include "proto/csi.pb-c.h"
#include "rpc/client.h"
#include "util/clock.h"
#include "util/file.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { GRPC_ABORTED = 10, GRPC_UNAVAILABLE = 14 };
/* The path, the request and the reply's type of a method. */
#define CALL(service, name, type, request)                                                                             \
    "/csi.v1." service "/" name, &(request).base, &csi__v1__##type##_response__descriptor
static const uint64_t call_timeout_ns = 120 * NS_PER_SECOND;
static const uint64_t start_timeout_ns = 15 * NS_PER_SECOND;

struct demo_driver {
    pid_t pid;
    struct rpc_client *client; /* owned */
    char name[96];
    char state[200];
};

/* ---- the process ------------------------------------------------------------------------------------------------- */

int demo_spawn(pid_t *ret, const char *program, const posix_spawn_file_actions_t *files, const char *const argv[])
{
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int r = posix_spawn(ret, program, files, &attributes, (char *const *)argv, environ);
    posix_spawnattr_destroy(&attributes);
    return r;
}

static int spawn_driver(const char *work, struct demo_driver *d, struct err *err)
{
    char program[512], endpoint[300], pool[300], log[300];
    int r = program_path("cisternd", program, sizeof program, err);
    if (r < 0)
        return r;
    snprintf(endpoint, sizeof endpoint, "unix://%s/csi.sock", work);
    snprintf(pool, sizeof pool, "%s/pool", work);
    snprintf(log, sizeof log, "%s/driver.log", work);
    const char *argv[] = {program, "--role=standalone", "--endpoint", endpoint, "--pool",
                          pool,    "--state",           d->state,     NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    int spawned = demo_spawn(&d->pid, program, &files, argv);
    posix_spawn_file_actions_destroy(&files);
    if (spawned != 0)
        return err_sys(err, spawned, "cannot start '%s'", program);
    return 0;
}

static int wait_ready(struct demo_driver *d, const char *work, struct err *err)
{
    Csi__V1__ProbeRequest probe = CSI__V1__PROBE_REQUEST__INIT;
    uint64_t give_up = clock_now_ns() + start_timeout_ns;
    for (;;) {
        ProtobufCMessage *reply = NULL;
        int status, died;
        if (rpc_call(d->client, CALL("Identity", "Probe", probe, probe), NS_PER_SECOND, &reply, &status, err) == 0) {
            Csi__V1__ProbeResponse *p = (Csi__V1__ProbeResponse *)reply;
            bool ready = !p->ready || p->ready->value;
            protobuf_c_message_free_unpacked(reply, NULL);
            if (ready)
                return 0;
        }
        if (waitpid(d->pid, &died, WNOHANG) == d->pid) {
            d->pid = 0;
            return err_set(err, ERR_IO, "the driver exited at its start; see '%s/driver.log'", work);
        }
        if (clock_now_ns() > give_up)
            return err_set(err, ERR_TIMEOUT, "the driver did not answer; see '%s/driver.log'", work);
        clock_sleep(20 * NS_PER_MS);
    }
}

static int ask_name(struct demo_driver *d, struct err *err)
{
    Csi__V1__GetPluginInfoRequest request = CSI__V1__GET_PLUGIN_INFO_REQUEST__INIT;
    ProtobufCMessage *reply;
    int status;
    int r = rpc_call(d->client, CALL("Identity", "GetPluginInfo", get_plugin_info, request), call_timeout_ns, &reply,
                     &status, err);
    if (r < 0)
        return r;
    Csi__V1__GetPluginInfoResponse *info = (Csi__V1__GetPluginInfoResponse *)reply;
    snprintf(d->name, sizeof d->name, "%.60s %.30s", info->name, info->vendor_version);
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

DEFINE_AUTO(demo_driver, struct demo_driver, demo_driver_free)

int demo_driver_start(const char *work, struct demo_driver **ret, struct err *err)
{
    auto_with(auto_clean_demo_driver) struct demo_driver *d = xcalloc(1, sizeof *d);
    char socket[300];
    snprintf(socket, sizeof socket, "%s/csi.sock", work);
    snprintf(d->state, sizeof d->state, "%.190s/state", work);
    int r = spawn_driver(work, d, err);
    if (r < 0)
        return r;
    d->client = rpc_client_new(socket);
    r = wait_ready(d, work, err);
    if (r == 0)
        r = ask_name(d, err);
    if (r < 0)
        return r;
    *ret = take(&d);
    return 0;
}

void demo_driver_free(struct demo_driver *d)
{
    if (!d)
        return;
    rpc_client_free(d->client);
    if (d->pid > 0) {
        kill(d->pid, SIGTERM);
        waitpid(d->pid, NULL, 0);
    }
    free(d);
}

const char *demo_driver_name(const struct demo_driver *d)
{
    return d->name;
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

/* The capability of each claim of the demo: a file system, one node, one pod. On the caller's stack. */
struct capability {
    Csi__V1__VolumeCapability whole;
    Csi__V1__VolumeCapability__MountVolume mount;
    Csi__V1__VolumeCapability__AccessMode mode;
};

static void capability_init(struct capability *c)
{
    csi__v1__volume_capability__init(&c->whole);
    csi__v1__volume_capability__mount_volume__init(&c->mount);
    csi__v1__volume_capability__access_mode__init(&c->mode);
    c->mode.mode = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_WRITER;
    c->whole.access_mode = &c->mode;
    c->whole.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
    c->whole.mount = &c->mount;
}

int demo_volume_create(struct demo_driver *d, const char *source_uri, const char *export_uri, uint64_t bytes,
                       struct demo_volume *ret, struct err *err)
{
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    Csi__V1__CreateVolumeRequest__ParametersEntry entries[] = {
        CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT, CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT,
        CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT, CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT};
    const char *const parameters[][2] = {
        {"uri", source_uri}, {"hydration", "gate"}, {"export.uri", export_uri}, {"export.include", "ckpt/**"}};
    Csi__V1__CreateVolumeRequest__ParametersEntry *list[countof(entries)];
    for (size_t i = 0; i < countof(entries); i++) {
        entries[i].key = (char *)parameters[i][0];
        entries[i].value = (char *)parameters[i][1];
        list[i] = &entries[i];
    }
    Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
    range.required_bytes = (int64_t)bytes;
    struct capability capability;
    capability_init(&capability);
    Csi__V1__VolumeCapability *capabilities[] = {&capability.whole};
    char name[64];
    snprintf(name, sizeof name, "pvc-demo-%d", (int)getpid());
    request.name = name;
    request.capacity_range = &range;
    request.n_parameters = countof(list);
    request.parameters = list;
    request.n_volume_capabilities = 1;
    request.volume_capabilities = capabilities;
    ProtobufCMessage *reply;
    int status;
    int r = rpc_call(d->client, CALL("Controller", "CreateVolume", create_volume, request), call_timeout_ns, &reply,
                     &status, err);
    if (r < 0)
        return err_wrap(err, "CreateVolume");
    snprintf(ret->id, sizeof ret->id, "%s", ((Csi__V1__CreateVolumeResponse *)reply)->volume->volume_id);
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

/* The driver retries a failed hydration without limit, since the bucket may be created later; the demo stops then. */
static bool volume_is_abnormal(struct demo_driver *d, char *id)
{
    Csi__V1__ControllerGetVolumeRequest request = CSI__V1__CONTROLLER_GET_VOLUME_REQUEST__INIT;
    request.volume_id = id;
    ProtobufCMessage *reply;
    int status;
    if (rpc_call(d->client, CALL("Controller", "ControllerGetVolume", controller_get_volume, request), call_timeout_ns,
                 &reply, &status, ERR_IGNORED) < 0)
        return false;
    bool abnormal = ((Csi__V1__ControllerGetVolumeResponse *)reply)->status->volume_condition->abnormal;
    protobuf_c_message_free_unpacked(reply, NULL);
    return abnormal;
}

/* Repeats a call as the kubelet or the provisioner would, until it succeeds or fails for good. `watched` is a volume
 * whose abnormal condition ends the wait; NULL: none. */
static int call_until_done(struct demo_driver *d, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *reply_type, char *watched,
                           bool (*go_on)(const char *sentence), struct err *err)
{
    for (;;) {
        ProtobufCMessage *reply;
        int status;
        int r = rpc_call(d->client, method, request, reply_type, call_timeout_ns, &reply, &status, err);
        if (r == 0) {
            protobuf_c_message_free_unpacked(reply, NULL);
            return 0;
        }
        if (!go_on || (status != GRPC_ABORTED && status != GRPC_UNAVAILABLE) || !go_on(err->text) ||
            (watched && volume_is_abnormal(d, watched)))
            return err_wrap(err, "%s", strrchr(method, '/') + 1);
        clock_sleep(200 * NS_PER_MS);
    }
}

int demo_volume_publish(struct demo_driver *d, struct demo_volume *v, bool (*go_on)(const char *sentence),
                        struct err *err)
{
    struct capability capability;
    capability_init(&capability);
    Csi__V1__NodeStageVolumeRequest stage = CSI__V1__NODE_STAGE_VOLUME_REQUEST__INIT;
    stage.volume_id = v->id;
    stage.staging_target_path = v->staging;
    stage.volume_capability = &capability.whole;
    int r = call_until_done(d, CALL("Node", "NodeStageVolume", node_stage_volume, stage), NULL, go_on, err);
    if (r < 0)
        return r;
    Csi__V1__NodePublishVolumeRequest publish = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
    publish.volume_id = v->id;
    publish.staging_target_path = v->staging;
    publish.target_path = v->target;
    publish.volume_capability = &capability.whole;
    return call_until_done(d, CALL("Node", "NodePublishVolume", node_publish_volume, publish), v->id, go_on, err);
}

int demo_volume_unpublish(struct demo_driver *d, struct demo_volume *v, struct err *err)
{
    Csi__V1__NodeUnpublishVolumeRequest unpublish = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
    unpublish.volume_id = v->id;
    unpublish.target_path = v->target;
    int r = call_until_done(d, CALL("Node", "NodeUnpublishVolume", node_unpublish_volume, unpublish), NULL, NULL, err);
    if (r < 0)
        return r;
    Csi__V1__NodeUnstageVolumeRequest unstage = CSI__V1__NODE_UNSTAGE_VOLUME_REQUEST__INIT;
    unstage.volume_id = v->id;
    unstage.staging_target_path = v->staging;
    return call_until_done(d, CALL("Node", "NodeUnstageVolume", node_unstage_volume, unstage), NULL, NULL, err);
}

int demo_volume_delete(struct demo_driver *d, struct demo_volume *v, bool (*go_on)(const char *sentence),
                       struct err *err)
{
    Csi__V1__DeleteVolumeRequest request = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    request.volume_id = v->id;
    return call_until_done(d, CALL("Controller", "DeleteVolume", delete_volume, request), NULL, go_on, err);
}

/* Until the status says the same after the descriptor was opened, the pid may be another process's. */
int demo_mount_kill(struct demo_driver *d, const struct demo_volume *v, struct err *err)
{
    char socket[256];
    struct keeper_status status, again;
    snprintf(socket, sizeof socket, "%s/keeper.sock", d->state);
    uint64_t give_up = clock_now_ns() + start_timeout_ns;
    do {
        if (keeper_status(socket, v->id, &status, err) < 0)
            return -(int)err->code;
        auto_fd process = status.pid > 0 ? pidfd_open(status.pid, 0) : -1;
        if (process >= 0 && keeper_status(socket, v->id, &again, err) < 0)
            return -(int)err->code;
        if (process >= 0 && again.pid == status.pid)
            return pidfd_send_signal(process, SIGKILL, NULL, 0) == 0 ? 0 : err_sys(err, errno, "cannot kill the mount");
        clock_sleep(20 * NS_PER_MS);
    } while (clock_now_ns() < give_up);
    return err_set(err, ERR_TIMEOUT, "no process serves the mount of '%s'", v->id);
}
