/* SPDX-License-Identifier: Apache-2.0 */
/* unit.h - what every unit test starts with: cmocka and the headers that it wants before itself. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
