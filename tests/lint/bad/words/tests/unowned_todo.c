/* SPDX-License-Identifier: Apache-2.0 */
/* TODO: later */
int f(void);
