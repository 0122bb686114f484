/* SPDX-License-Identifier: Apache-2.0 */
static int pool_open(void)
{
    return 1;
}

int pool_open(void)
{
    return 0;
}
