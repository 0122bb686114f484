/* SPDX-License-Identifier: Apache-2.0 */
<<<<<<< HEAD
int f(void);
