/* SPDX-License-Identifier: Apache-2.0 */
/* A bundle of certificates as a Secret or a field brings it: trusted, or refused in a sentence. */
#include "fuzz.h"
#include "util/x509.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct str pem = fuzz_str(bytes, len), rest = pem, one;
    struct x509_validity life;
    struct err err = {0};
    bool is_good = x509_check_bundle(pem, &err) == 0;
    if (!is_good)
        assert(err.code == ERR_INVALID && str_is_utf8(str_of(err.text)));
    size_t count = 0;
    while (x509_split(&rest, &one)) {
        assert(one.len > 0 && one.ptr >= pem.ptr && one.ptr + one.len <= pem.ptr + pem.len);
        count++;
    }
    assert(!is_good || count > 0);
    (void)!x509_validity_of(pem, &life);
    char *text = calloc(len + 1, 1);
    memcpy(text, bytes, len);
    (void)x509_is_for(text, "cistern-broker");
    (void)x509_is_signed_by(text, text);
    (void)x509_is_pair(&(struct x509_pair){text, text});
    free(text);
    return 0;
}
