/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"
#include <grpc/status.h>

/* The provisioner tries another node only after RESOURCE_EXHAUSTED, and the same node after ABORTED and UNAVAILABLE. */
static const int statuses[] = {
    [ERR_NOT_FOUND] = GRPC_STATUS_NOT_FOUND,
    [ERR_EXISTS] = GRPC_STATUS_ALREADY_EXISTS,
    [ERR_NO_SPACE] = GRPC_STATUS_RESOURCE_EXHAUSTED,
    [ERR_DENIED] = GRPC_STATUS_PERMISSION_DENIED,
    [ERR_BUSY] = GRPC_STATUS_FAILED_PRECONDITION,
    [ERR_INVALID] = GRPC_STATUS_INVALID_ARGUMENT,
    [ERR_CORRUPT] = GRPC_STATUS_DATA_LOSS,
    [ERR_CHANGED] = GRPC_STATUS_ABORTED,
    [ERR_IO] = GRPC_STATUS_INTERNAL,
    [ERR_TIMEOUT] = GRPC_STATUS_DEADLINE_EXCEEDED,
    [ERR_CANCELLED] = GRPC_STATUS_CANCELLED,
    [ERR_AGAIN] = GRPC_STATUS_UNAVAILABLE,
    [ERR_PENDING] = GRPC_STATUS_ABORTED,
    [ERR_RANGE] = GRPC_STATUS_OUT_OF_RANGE,
    [ERR_UNSUPPORTED] = GRPC_STATUS_UNIMPLEMENTED,
    [ERR_INTERNAL] = GRPC_STATUS_INTERNAL,
    [ERR_ABSENT] = GRPC_STATUS_FAILED_PRECONDITION,
};

static const char *const names[] = {
    [GRPC_STATUS_OK] = "OK",
    [GRPC_STATUS_CANCELLED] = "Canceled",
    [GRPC_STATUS_UNKNOWN] = "Unknown",
    [GRPC_STATUS_INVALID_ARGUMENT] = "InvalidArgument",
    [GRPC_STATUS_DEADLINE_EXCEEDED] = "DeadlineExceeded",
    [GRPC_STATUS_NOT_FOUND] = "NotFound",
    [GRPC_STATUS_ALREADY_EXISTS] = "AlreadyExists",
    [GRPC_STATUS_PERMISSION_DENIED] = "PermissionDenied",
    [GRPC_STATUS_RESOURCE_EXHAUSTED] = "ResourceExhausted",
    [GRPC_STATUS_FAILED_PRECONDITION] = "FailedPrecondition",
    [GRPC_STATUS_ABORTED] = "Aborted",
    [GRPC_STATUS_OUT_OF_RANGE] = "OutOfRange",
    [GRPC_STATUS_UNIMPLEMENTED] = "Unimplemented",
    [GRPC_STATUS_INTERNAL] = "Internal",
    [GRPC_STATUS_UNAVAILABLE] = "Unavailable",
    [GRPC_STATUS_DATA_LOSS] = "DataLoss",
    [GRPC_STATUS_UNAUTHENTICATED] = "Unauthenticated",
};

int rpc_status_of(enum err_code code)
{
    return (size_t)code < countof(statuses) && statuses[code] ? statuses[code] : GRPC_STATUS_INTERNAL;
}

enum err_code rpc_code_of(int status)
{
    for (size_t code = countof(statuses); code-- > 1;)
        if (statuses[code] == status)
            return (enum err_code)code;
    return ERR_INTERNAL;
}

const char *rpc_status_name(int status)
{
    return status >= 0 && (size_t)status < countof(names) ? names[status] : "Unknown";
}
