/* SPDX-License-Identifier: Apache-2.0 */
#include "util/err.h"
int f(struct err *err)
{
    return err_advise(err, 9998, "");
}
