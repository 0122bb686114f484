/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.json: any bytes are a verdict, or an error; and only a file that says so in full says "done". */
#include "directory.h"
#include "export/verdict.h"
#include "fuzz.h"
#include <sys/stat.h>

static int volume(void)
{
    int r = mkdirat(fuzz_folder(), "export", 0700);
    assert(r == 0 || errno == EEXIST);
    return fuzz_folder();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err = {0};
    fuzz_file(volume(), "export/verdict.json", fuzz_str(bytes, len));
    struct verdict v;
    if (verdict_read(volume(), &v, &err) < 0) {
        assert(err.code != 0 && err.text[0]);
        return 0;
    }
    assert(v.state != VERDICT_DONE || memmem(bytes, len, "done", 4));
    verdict_done(&v);
    return 0;
}
