/* SPDX-License-Identifier: Apache-2.0 */
/* status.json: any bytes are a status, or an error that names the file. A status that was read is written as a file
 * that reads to the same. So a damaged file never reads as "done". */
#include "directory.h"
#include "fuzz.h"
#include "hydrate/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct hydrate_status read, again;
    struct err err = {0};
    fuzz_file(fuzz_folder(), HYDRATE_STATUS_FILE, fuzz_str(bytes, len));
    if (hydrate_status_read(fuzz_folder(), &read, &err) < 0) {
        assert(strstr(err.text, HYDRATE_STATUS_FILE));
        return 0;
    }
    assert(read.phase != HYDRATE_DONE || len > 4);
    if (hydrate_status_write(fuzz_folder(), &read, &err) < 0)
        return 0;
    int r = hydrate_status_read(fuzz_folder(), &again, &err);
    assert(r == 0);
    assert(read.phase == again.phase && read.objects_done == again.objects_done && read.bytes_done == again.bytes_done);
    assert(read.error_count == again.error_count && read.has_error == again.has_error);
    return 0;
}
