/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/csi.pb-c.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "unit.h"
#include "util/clock.h"
#include <stdio.h>

static char folder[] = "/tmp/cistern-rpc-client-XXXXXX";
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

static const struct rpc_method methods[] = {
    {"/csi.v1.Identity/GetPluginInfo", &csi__v1__get_plugin_info_request__descriptor,
     &csi__v1__get_plugin_info_response__descriptor, name},
    {"/csi.v1.Identity/Probe", &csi__v1__probe_request__descriptor, &csi__v1__probe_response__descriptor, refuse},
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
    const struct rpc_options options = {
        .socket_path = path, .driver_name = "csi.example", .methods = methods, .method_count = countof(methods)};
    assert_int_equal(rpc_server_start(&options, &s, &err), 0);
    return s;
}

static void a_call_brings_the_answer_or_the_servers_sentence(void **state)
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
                     -ERR_BUSY);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_brings_the_answer_or_the_servers_sentence),
        cmocka_unit_test(no_server_is_unavailable_and_a_new_one_is_found),
    };
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/s", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
