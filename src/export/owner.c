/* SPDX-License-Identifier: Apache-2.0 */
#include "owner.h"
#include "spec/spec.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/mem.h"
#include <inttypes.h>
#include <stdio.h>

#define OWNER_FILE "owner"

void owner_of_volume(const struct spec *s, char ret[OWNER_MAX])
{
    uint8_t sum[32];
    char text[SPEC_ID_LEN + 32];
    int n = snprintf(text, sizeof text, "%s %" PRId64, s->id.text, s->created_ns);
    sha256((struct str){text, (size_t)n}, sum);
    hex_text(sum, (OWNER_MAX - 1) / 2, ret);
}

int owner_of_state(int export_dir, char ret[OWNER_MAX], struct err *err)
{
    auto_mem char *text = NULL;
    struct err why;
    size_t len = 0;
    int r = file_read_state(export_dir, OWNER_FILE, OWNER_MAX, &text, &len, &why);
    if (r == 0 && len == OWNER_MAX - 1) {
        memcpy(ret, text, OWNER_MAX);
        return 0;
    }
    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_copy(err, &why);
    snprintf(ret, OWNER_MAX, "%016" PRIx64 "%016" PRIx64, clock_random(), clock_random());
    return file_replace(export_dir, OWNER_FILE, (struct str){ret, OWNER_MAX - 1}, 0600, err);
}
