/* SPDX-License-Identifier: Apache-2.0 */
/* health.h - Encodes a volume's health: VolumeCondition, which today's kubelets read, and the VolumeHealth that
 * replaces it in CSI 1.13. Pure; memory is the call's. */
#pragma once

#include "rpc/server.h"
#include <proto/csi.pb-c.h>

/* A message with its default values, which lives as long as the call. */
#define message_new(call, type, init)                                                                                  \
    ({                                                                                                                 \
        type *message_ = rpc_alloc((call), 1, sizeof *message_);                                                       \
        init(message_);                                                                                                \
        message_;                                                                                                      \
    })

enum { HEALTH_ITEMS_MAX = 6, HEALTH_TEXT_MAX = 400 };

struct health_item {
    Csi__V1__VolumeHealthErrorType status;
    const char *reason; /* static, CamelCase */
    char message[HEALTH_TEXT_MAX];
};

struct health {
    struct health_item items[HEALTH_ITEMS_MAX];
    size_t count;
    char progress[HEALTH_TEXT_MAX]; /* the activity of a healthy volume: "hydrating: 61% ..."; "": none */
};

/* Adds an abnormal item; the caller writes its message. At most HEALTH_ITEMS_MAX. */
struct health_item *health_add(struct health *h, Csi__V1__VolumeHealthErrorType status, const char *reason);

Csi__V1__VolumeCondition *health_condition(struct rpc_call *call, const struct health *h);
Csi__V1__VolumeHealth *health_message(struct rpc_call *call, const char *id, const struct health *h);
