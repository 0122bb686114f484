/* SPDX-License-Identifier: Apache-2.0 */
/* kubeconfig.h - the text of a kubeconfig file. home: any; pure but for the files that it names. */
#pragma once

#include "kube/config.h"

enum { KUBE_FILE_MAX = 1 << 20 };

/* Files are named from `folder`. On failure *ret is untouched. */
must_check int kubeconfig_parse(struct str text, const char *folder, struct kube_config *ret, struct err *err);

/* ERR_INVALID unless it is https://..., or http:// to this machine. Copied without a slash at its end. */
must_check int kubeconfig_server(struct str url, char **ret, struct err *err);
