/* SPDX-License-Identifier: Apache-2.0 */
int f(void)
{
    goto out;
out:
    return 0;
}
