/* SPDX-License-Identifier: Apache-2.0 */
#include "csi/service.h"
#include "request.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/names.h"
#include <assert.h>

/* ---- identity ---------------------------------------------------------------------------------------------------- */

HANDLER(identity_info, GetPluginInfo)
{
    p->name = rpc_dup(call, STR(NAME_DRIVER));
    p->vendor_version = rpc_dup(call, STR(CISTERN_VERSION));
    return 0;
}

static Csi__V1__PluginCapability *add_capability(struct rpc_call *call, Csi__V1__GetPluginCapabilitiesResponse *p)
{
    Csi__V1__PluginCapability *c = message_new(call, Csi__V1__PluginCapability, csi__v1__plugin_capability__init);
    p->capabilities[p->n_capabilities++] = c;
    return c;
}

static void add_service(struct rpc_call *call, Csi__V1__GetPluginCapabilitiesResponse *p,
                        Csi__V1__PluginCapability__Service__Type type)
{
    Csi__V1__PluginCapability *c = add_capability(call, p);
    c->type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_SERVICE;
    c->service = message_new(call, typeof(*c->service), csi__v1__plugin_capability__service__init);
    c->service->type = type;
}

HANDLER(identity_capabilities, GetPluginCapabilities)
{
    p->capabilities = rpc_alloc(call, 3, sizeof *p->capabilities);
    add_service(call, p, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS);
    Csi__V1__PluginCapability *c = add_capability(call, p);
    c->type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_VOLUME_EXPANSION;
    c->volume_expansion =
        message_new(call, typeof(*c->volume_expansion), csi__v1__plugin_capability__volume_expansion__init);
    c->volume_expansion->type = CSI__V1__PLUGIN_CAPABILITY__VOLUME_EXPANSION__TYPE__ONLINE;
    if (s->controller)
        add_service(call, p, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE);
    return 0;
}

HANDLER(identity_probe, Probe)
{
    p->ready = message_new(call, typeof(*p->ready), google__protobuf__bool_value__init);
    p->ready->value = !s->controller || !s->controller->is_ready || s->controller->is_ready(s->ctx);
    return 0;
}

/* ---- methods ----------------------------------------------------------------------------------------------------- */

#define IDENTITY(name, type, handler) METHOD("Identity", name, type, handler, true)

static const struct rpc_method identity_methods[] = {
    IDENTITY("GetPluginInfo", get_plugin_info, identity_info),
    IDENTITY("GetPluginCapabilities", get_plugin_capabilities, identity_capabilities),
    IDENTITY("Probe", probe, identity_probe),
};

static_assert(countof(identity_methods) + countof(node_methods) + countof(controller_methods) == CSI_METHODS_MAX,
              "the table of a service holds every method");

static void add_methods(struct csi_service *s, const struct rpc_method *methods, size_t count)
{
    memcpy(s->methods + s->method_count, methods, count * sizeof *methods);
    s->method_count += count;
}

void csi_service_init(struct csi_service *s)
{
    s->method_count = 0;
    add_methods(s, identity_methods, countof(identity_methods));
    if (s->node)
        add_methods(s, node_methods, countof(node_methods));
    if (s->controller)
        add_methods(s, controller_methods, countof(controller_methods));
}

void csi_log_call(void *, const char *path, const struct err *err, uint64_t took_ns)
{
    char took[TIME_TEXT_MAX];
    duration_text(took_ns, took);
    if (!err)
        log_event(LOG_DEBUG, "call answered", "method", path, "took", took, NULL);
    else
        log_err(err->code == ERR_INTERNAL || err->code == ERR_IO ? LOG_ERROR : LOG_INFO, "call refused", err, "method",
                path, "took", took, NULL);
}
