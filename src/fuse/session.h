/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - Serves one volume to the kernel: the work of the program cistern-mount.
 * home: the main thread. */
#pragma once

#include "keeper/wire.h"

/* Serves the volume that the keeper sends over the control socket (own_control_fd) until it is unmounted: then 0. After
 * any other end the keeper starts the next process, unless *ret_lost: then no process can continue the session. */
must_check int session_serve(int own_control_fd, bool *ret_lost, struct err *err);
