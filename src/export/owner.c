/* SPDX-License-Identifier: Apache-2.0 */
#include "owner.h"
#include "spec/spec.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/hash.h"
#include <inttypes.h>
#include <stdio.h>

#define OWNER_FILE "owner"
/* "cistern-owner 1 " and the digits; only the digits before formats had versions. */
#define OWNER_HEAD "cistern-owner "

enum { FORMAT = 1, FILE_MAX_BYTES = 256 };

void owner_of_volume(const struct spec *s, char ret[OWNER_MAX])
{
    uint8_t sum[32];
    char text[SPEC_ID_LEN + 32];
    int n = snprintf(text, sizeof text, "%s %" PRId64, s->id.text, s->created_ns);
    sha256((struct str){text, (size_t)n}, sum);
    hex_text(sum, (OWNER_MAX - 1) / 2, ret);
}

/* *ret stays empty for a damaged file. */
static int parse(struct str text, char ret[OWNER_MAX], struct err *err)
{
    struct str rest = text, number;
    uint64_t format;
    if (str_starts(text, STR(OWNER_HEAD))) {
        rest = str_from(text, sizeof OWNER_HEAD - 1);
        if (!str_split(&rest, ' ', &number) || str_to_u64(number, &format, ERR_IGNORED) < 0)
            return 0;
        if (format > FORMAT)
            return err_fail(err, ERR_UNSUPPORTED, CIS_EXPORT_RECORD_VERSION,
                            "'" OWNER_FILE "': format %" PRIu64 " of a newer Cistern; this one reads formats up to %d",
                            format, FORMAT);
    }
    if (rest.len == OWNER_MAX - 1)
        snprintf(ret, OWNER_MAX, "%.*s", STR_FMT(rest));
    return 0;
}

int owner_of_state(int export_dir, char ret[OWNER_MAX], struct err *err)
{
    auto_mem char *text = NULL;
    auto_sbuf made = SBUF(FILE_MAX_BYTES);
    struct err why;
    size_t len = 0;
    int r = file_read_state(export_dir, OWNER_FILE, FILE_MAX_BYTES, &text, &len, &why);
    ret[0] = '\0';
    if (r < 0 && r != -ERR_NOT_FOUND)
        return err_copy(err, &why);
    r = r < 0 ? 0 : parse((struct str){text, len}, ret, err);
    if (r < 0 || ret[0])
        return r;
    snprintf(ret, OWNER_MAX, "%016" PRIx64 "%016" PRIx64, clock_random(), clock_random());
    sbuf_addf(&made, OWNER_HEAD "%d %s", FORMAT, ret);
    return file_replace(export_dir, OWNER_FILE, sbuf_str(&made), 0600, err);
}
