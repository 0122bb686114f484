/* SPDX-License-Identifier: Apache-2.0 */
/* env.h - reads environment variables. home: any thread; no thread sets variables while others read them. */
#pragma once

#include <stdlib.h>

/* NULL if the variable is not set or empty. The tools that define these variables treat both alike. */
static inline const char *env_get(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* A directory of the user. A relative one counts as not set: it would depend on the working directory. */
static inline const char *env_get_directory(const char *name)
{
    const char *value = env_get(name);
    return value && value[0] == '/' ? value : NULL;
}
