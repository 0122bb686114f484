/* SPDX-License-Identifier: Apache-2.0 */
/* env.h - what the environment says. home: any thread; nobody sets variables while others read them. */
#pragma once

#include <stdlib.h>

/* NULL: it is not set, or empty, which means the same to every tool that we take variables from. */
static inline const char *env_get(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}
