/* SPDX-License-Identifier: Apache-2.0 */
/* volume_status.h - the node's half of a CisternVolume. Private to this folder. */
#pragma once

#include "api/volume.h"

/* `j` is the whole object. */
must_check int api_volume_status_read(const json *j, struct api_volume_status *ret, struct err *err);
void api_volume_status_done(struct api_volume_status *s);
