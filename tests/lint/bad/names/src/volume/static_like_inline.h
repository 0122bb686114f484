/* SPDX-License-Identifier: Apache-2.0 */
static inline int pool_count(void)
{
    return 1;
}

static int pool_count(void)
{
    return 0;
}
