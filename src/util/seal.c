/* SPDX-License-Identifier: Apache-2.0 */
#include "util/seal.h"
#include <assert.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* Both are needed. The limit does not apply to a core that is piped into a program (kernel.core_pattern), and exec
 * clears the flag. Neither can fail: both only reduce rights. */
void seal_process(void)
{
    const struct rlimit none = {0, 0};
    int sealed = prctl(PR_SET_DUMPABLE, 0);
    int limited = setrlimit(RLIMIT_CORE, &none);
    assert(sealed == 0 && limited == 0);
}
