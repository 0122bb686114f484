/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - a fuzz target: one function that takes any bytes and must not crash, hang, leak or disagree with itself. */
#pragma once

#include "util/str.h"
#include <assert.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static inline struct str fuzz_str(const uint8_t *bytes, size_t len)
{
    return (struct str){(const char *)bytes, len};
}
