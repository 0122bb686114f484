/* SPDX-License-Identifier: Apache-2.0 */
static const char *const text = "the same command "
                                "lists anew";
