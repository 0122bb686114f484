/* SPDX-License-Identifier: Apache-2.0 */
static void nobody_is_asked(void **state)
{
    (void)state;
}
