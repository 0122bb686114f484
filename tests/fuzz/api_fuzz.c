/* SPDX-License-Identifier: Apache-2.0 */
/* An object as some API server sent it: whatever is read can be written, and read again. */
#include "api/pool.h"
#include "api/source.h"
#include "api/volume.h"
#include "fuzz.h"

static void volume(const json *j)
{
    struct err err;
    auto_api_volume v = NULL;
    auto_api_volume again = NULL;
    auto_spec spec = NULL;
    if (api_volume_read(j, &v, &err) < 0)
        return;
    auto_json whole = api_volume_json(v);
    json_free(api_volume_status_json(v));
    json_free(api_volume_controller_json(v));
    (void)!api_volume_spec(v, &spec, &err);
    if (api_volume_read(whole, &again, &err) < 0)
        abort();
}

static void pool(const json *j)
{
    struct err err;
    auto_api_pool p = NULL;
    if (api_pool_read(j, &p, &err) < 0)
        return;
    json_free(api_pool_status_json(p));
}

static void source(const json *j)
{
    struct err err;
    auto_api_source s = NULL;
    auto_spec spec = NULL;
    if (api_source_read(j, &s, &err) < 0)
        return;
    json_free(api_source_status_json(s));
    (void)!api_source_spec(s, &spec, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err;
    auto_json j = NULL;
    if (json_parse(fuzz_str(bytes, len), "it", &j, &err) < 0)
        return 0;
    volume(j);
    pool(j);
    source(j);
    return 0;
}
