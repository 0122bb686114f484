/* SPDX-License-Identifier: Apache-2.0 */
/* A kubeconfig of any bytes. An accepted one has a valid address. */
#include "fuzz.h"
#include "kube/config.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err;
    auto_kube_config c = {0};
    /* Files that it names are looked for where none are. */
    if (kubeconfig_parse((struct str){(const char *)data, size}, "/nonexistent", &c, &err) < 0) {
        assert(!c.server && !c.key && err.text[0]);
        return 0;
    }
    assert(c.server && (strncmp(c.server, "https://", 8) == 0 || strncmp(c.server, "http://", 7) == 0));
    assert(!c.certificate == !c.key);
    return 0;
}
