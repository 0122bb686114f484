/* SPDX-License-Identifier: Apache-2.0 */
int f(void)
{
    return fork();
}
