/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include "proto/csi.pb-c.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "util/clock.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static char path[64];

static int name(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,
                struct err *err)
{
    (void)ctx, (void)call, (void)request, (void)err;
    ((Csi__V1__GetPluginInfoResponse *)reply)->name = (char *)"csi.example";
    return 0;
}

static int refuse(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,
                  struct err *err)
{
    (void)ctx, (void)call, (void)request, (void)reply;
    return err_set(err, ERR_BUSY, "not now");
}

static _Atomic unsigned sleepers, kept_awake;

/* Waits until the server stops, if it may. */
static int sleep_long(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,
                      struct err *err)
{
    (void)ctx, (void)request, (void)reply;
    uint64_t began_ns = clock_now_ns();
    atomic_fetch_add(&sleepers, 1);
    (void)!rpc_sleep_until(call, began_ns + 60 * NS_PER_SECOND);
    atomic_fetch_add(&kept_awake, clock_now_ns() - began_ns < 30 * NS_PER_SECOND && !rpc_cancelled(call));
    return err_set(err, ERR_AGAIN, "not yet");
}

/* Holds its thread whatever comes. */
static _Atomic bool holds;
static int hold(void *ctx, struct rpc_call *call, const ProtobufCMessage *request, ProtobufCMessage *reply,
                struct err *err)
{
    (void)ctx, (void)call, (void)request, (void)reply;
    atomic_fetch_add(&sleepers, 1);
    while (atomic_load(&holds))
        usleep(1000);
    return err_set(err, ERR_AGAIN, "not yet");
}

static const struct rpc_method methods[] = {
    {"/csi.v1.Identity/GetPluginInfo", &csi__v1__get_plugin_info_request__descriptor,
     &csi__v1__get_plugin_info_response__descriptor, name, true},
    {"/csi.v1.Identity/Probe", &csi__v1__probe_request__descriptor, &csi__v1__probe_response__descriptor, refuse},
    {"/test/Sleep", &csi__v1__probe_request__descriptor, &csi__v1__probe_response__descriptor, sleep_long},
    {"/test/Hold", &csi__v1__probe_request__descriptor, &csi__v1__probe_response__descriptor, hold},
};

static int ask(struct rpc_client *c, ProtobufCMessage **ret, int *ret_status, struct err *err)
{
    Csi__V1__GetPluginInfoRequest request = CSI__V1__GET_PLUGIN_INFO_REQUEST__INIT;
    return rpc_call(c, methods[0].path, &request.base, methods[0].reply, NS_PER_SECOND, ret, ret_status, err);
}

static struct rpc_server *serve(void)
{
    struct err err;
    struct rpc_server *s = NULL;
    const struct rpc_options options = {.socket_path = path,
                                        .driver_name = "csi.example",
                                        .threads = 4,
                                        .methods = methods,
                                        .method_count = countof(methods)};
    assert_int_equal(rpc_server_start(&options, &s, &err), 0);
    return s;
}

static void call_returns_the_reply_or_the_servers_sentence(void **state)
{
    (void)state;
    struct rpc_server *s = serve();
    auto_rpc_client c = rpc_client_new(path);
    ProtobufCMessage *reply;
    struct err err;
    int status = -1;
    assert_int_equal(ask(c, &reply, &status, &err), 0);
    assert_string_equal(((Csi__V1__GetPluginInfoResponse *)reply)->name, "csi.example");
    protobuf_c_message_free_unpacked(reply, NULL);
    Csi__V1__ProbeRequest probe = CSI__V1__PROBE_REQUEST__INIT;
    assert_int_equal(rpc_call(c, methods[1].path, &probe.base, methods[1].reply, NS_PER_SECOND, &reply, &status, &err),
                     -ERR_ABSENT); /* of the codes with status 9 the last, as rpc_code_of says */
    assert_int_equal(status, 9);
    assert_non_null(strstr(err.text, "not now"));
    assert_int_equal(
        rpc_call(c, "/csi.v1.No/Such", &probe.base, methods[1].reply, NS_PER_SECOND, &reply, &status, &err),
        -ERR_UNSUPPORTED);
    rpc_server_free(s);
}

static void no_server_is_unavailable_and_a_new_one_is_found(void **state)
{
    (void)state;
    auto_rpc_client c = rpc_client_new(path);
    ProtobufCMessage *reply;
    struct err err;
    int status = -1, r = -1;
    assert_int_equal(ask(c, &reply, &status, &err), -ERR_AGAIN);
    assert_int_equal(status, 14);
    struct rpc_server *s = serve();
    for (uint64_t until = clock_now_ns() + 20 * NS_PER_SECOND; r != 0 && clock_now_ns() < until; usleep(50000))
        r = ask(c, &reply, &status, &err);
    assert_int_equal(r, 0);
    protobuf_c_message_free_unpacked(reply, NULL);
    rpc_server_free(s);
}

static void *call_it(void *method)
{
    auto_rpc_client c = rpc_client_new(path);
    Csi__V1__ProbeRequest q = CSI__V1__PROBE_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct err err;
    int status;
    const struct rpc_method *m = method;
    (void)!rpc_call(c, m->path, &q.base, m->reply, 60 * NS_PER_SECOND, &reply, &status, &err);
    return NULL;
}

static void call_at_once(pthread_t *threads, size_t count, const struct rpc_method *m)
{
    atomic_store(&sleepers, 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_it, (void *)(uintptr_t)m), 0);
}

static void wait_for(_Atomic unsigned *what, unsigned count)
{
    for (int i = 0; i < 2000 && atomic_load(what) < count; i++)
        usleep(10000);
    assert_true(atomic_load(what) >= count);
}

static void prompt_method_is_answered_while_all_threads_are_busy(void **state)
{
    (void)state;
    pthread_t callers[8];
    struct rpc_server *s = serve();
    auto_rpc_client c = rpc_client_new(path);
    ProtobufCMessage *reply;
    struct err err;
    int status;
    atomic_store(&holds, true);
    call_at_once(callers, countof(callers), &methods[3]);
    wait_for(&sleepers, 4);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ask(c, &reply, &status, &err), 0);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    assert_int_equal(atomic_load(&sleepers), 4); /* the other four still wait for a thread */
    atomic_store(&holds, false);
    for (size_t i = 0; i < countof(callers); i++)
        pthread_join(callers[i], NULL);
    rpc_server_free(s);
}

static void sleeping_calls_leave_a_quarter_of_the_threads_free(void **state)
{
    (void)state;
    pthread_t callers[6];
    struct rpc_server *s = serve();
    auto_rpc_client c = rpc_client_new(path);
    Csi__V1__ProbeRequest probe = CSI__V1__PROBE_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct err err;
    int status;
    atomic_store(&kept_awake, 0);
    call_at_once(callers, countof(callers), &methods[2]);
    wait_for(&sleepers, 6);
    wait_for(&kept_awake, 3);
    assert_int_equal(
        rpc_call(c, methods[1].path, &probe.base, methods[1].reply, 20 * NS_PER_SECOND, &reply, &status, &err),
        -ERR_ABSENT);
    rpc_server_stop(s, NS_PER_SECOND);
    for (size_t i = 0; i < countof(callers); i++)
        pthread_join(callers[i], NULL);
    assert_int_equal(atomic_load(&kept_awake), 3);
    rpc_server_free(s);
}

static int setup(void **state)
{
    int r = folder_setup(state);
    snprintf(path, sizeof path, "%s/s", dir_name);
    return r;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_returns_the_reply_or_the_servers_sentence),
        cmocka_unit_test(no_server_is_unavailable_and_a_new_one_is_found),
        cmocka_unit_test(prompt_method_is_answered_while_all_threads_are_busy),
        cmocka_unit_test(sleeping_calls_leave_a_quarter_of_the_threads_free),
    };
    return cmocka_run_group_tests(tests, setup, folder_teardown);
}
