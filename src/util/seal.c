/* SPDX-License-Identifier: Apache-2.0 */
#include "util/seal.h"
#include <assert.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* The limit alone would not do: a core that is piped into a program (kernel.core_pattern) is written whatever it says.
 * Nor would the flag alone: an exec takes it off. Neither can fail: both only give something up. */
void seal_process(void)
{
    const struct rlimit none = {0, 0};
    int sealed = prctl(PR_SET_DUMPABLE, 0);
    int limited = setrlimit(RLIMIT_CORE, &none);
    assert(sealed == 0 && limited == 0);
}
