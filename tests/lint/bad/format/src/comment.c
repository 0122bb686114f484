/* SPDX-License-Identifier: Apache-2.0 */
/* A sentence.
 */
int f(void);
