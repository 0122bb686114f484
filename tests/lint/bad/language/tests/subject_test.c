/* SPDX-License-Identifier: Apache-2.0 */
static void what_was_written_is_read(void **state)
{
    (void)state;
}
