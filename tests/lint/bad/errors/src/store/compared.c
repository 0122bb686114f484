/* SPDX-License-Identifier: Apache-2.0 */
#include "util/err.h"
bool f(const struct err *err)
{
    return err->id == CIS_BUCKET_NOT_FOUND;
}
