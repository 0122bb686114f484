/* SPDX-License-Identifier: Apache-2.0 */
typedef struct thing {
    int x;
} thing;
