/* SPDX-License-Identifier: Apache-2.0 */
#include "upload_id.h"
#include "util/clock.h"
#include "util/hash.h"
#include <inttypes.h>
#include <stdio.h>

void upload_id_of_key(struct str key, char ret[UPLOAD_KEY_LEN + 1])
{
    uint8_t sum[32];
    sha256(key, sum);
    hex_text(sum, UPLOAD_KEY_LEN / 2, ret);
}

void upload_id_make(struct str key, char ret[UPLOAD_ID_LEN + 1])
{
    upload_id_of_key(key, ret);
    snprintf(ret + UPLOAD_KEY_LEN, UPLOAD_ID_LEN - UPLOAD_KEY_LEN + 1, "%016" PRIx64, clock_random());
}

bool upload_id_is_valid(struct str id)
{
    return id.len == UPLOAD_ID_LEN && str_is_of(id, CHARS_DIGITS "abcdef");
}
