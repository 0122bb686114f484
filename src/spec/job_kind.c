/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/job_kind.h"
#include <stddef.h>

const char *job_kind_verb(enum job_kind kind)
{
    static const char *const verbs[] = {[JOB_HYDRATE] = "hydrate",
                                        [JOB_EXPORT_UNPUBLISH] = "export",
                                        [JOB_EXPORT_RELEASE] = "export",
                                        [JOB_HOLD] = "hold"};
    return verbs[kind];
}

void job_kind_command(enum job_kind kind, const char *program, const char *path, const char *ret[JOB_KIND_WORDS_MAX])
{
    size_t n = 0;
    ret[n++] = program;
    ret[n++] = job_kind_verb(kind);
    if (kind != JOB_HOLD) {
        ret[n++] = "--no-progress";
        ret[n++] = "--volume";
        ret[n++] = path;
    }
    if (kind == JOB_EXPORT_UNPUBLISH || kind == JOB_EXPORT_RELEASE) {
        ret[n++] = "--for";
        ret[n++] = kind == JOB_EXPORT_RELEASE ? "release" : "unpublish";
    }
    ret[n] = NULL;
}
