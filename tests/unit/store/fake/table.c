/* SPDX-License-Identifier: Apache-2.0 */
/* The table of stores with one line more: this file replaces the library's. */
#define BACKENDS_OF_TEST BACKEND(fake)
#include "backends.c"
