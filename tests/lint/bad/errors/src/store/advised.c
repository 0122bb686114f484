/* SPDX-License-Identifier: Apache-2.0 */
#include "util/err.h"
int f(struct err *err)
{
    return err_advise_text(err, CIS_BUCKET_NOT_FOUND, "look elsewhere");
}
