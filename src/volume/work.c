/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/work.h"
#include <stddef.h>

const char *work_verb(enum job_kind kind)
{
    return kind == JOB_HYDRATE ? "hydrate" : "export";
}

void work_command(enum job_kind kind, const char *program, const char *path, const char *ret[WORK_WORDS_MAX])
{
    size_t n = 0;
    ret[n++] = program;
    ret[n++] = work_verb(kind);
    ret[n++] = "--no-progress";
    ret[n++] = "--volume";
    ret[n++] = path;
    if (kind != JOB_HYDRATE) {
        ret[n++] = "--for";
        ret[n++] = kind == JOB_EXPORT_RELEASE ? "release" : "unpublish";
    }
    ret[n] = NULL;
}
