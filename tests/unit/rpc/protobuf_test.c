/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"
#include "unit.h"
#include <proto/csi.pb-c.h>

#define CREATE &csi__v1__create_volume_request__descriptor

static int check(const char *bytes, size_t len, struct err *err)
{
    return rpc_protobuf_check(CREATE, (const uint8_t *)bytes, len, err);
}
#define CHECK(literal, err) check(literal, sizeof(literal) - 1, err)

static void packed_request_is_accepted(void **state)
{
    (void)state;
    struct err err;
    Csi__V1__CreateVolumeRequest r = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
    Csi__V1__CreateVolumeRequest__ParametersEntry entry = CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT;
    Csi__V1__CreateVolumeRequest__ParametersEntry *entries[] = {&entry};
    uint8_t bytes[256];
    r.name = (char[]){"pvc-\xc3\xa9"};
    range.required_bytes = -1;
    r.capacity_range = &range;
    entry.key = (char[]){"pool"};
    entry.value = (char[]){"nvme"};
    r.parameters = entries;
    r.n_parameters = 1;
    size_t len = csi__v1__create_volume_request__pack(&r, bytes);
    assert_int_equal(rpc_protobuf_check(CREATE, bytes, len, &err), 0);
    for (size_t cut = 1; cut < 6; cut++)
        assert_int_equal(rpc_protobuf_check(CREATE, bytes, len - cut, &err), -ERR_INVALID);
}

static void a_nul_in_a_string_is_refused_by_name(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(CHECK("\x0a\x03"
                           "a\0b",
                           &err),
                     -ERR_INVALID);
    assert_string_equal(err.text, "'name' of 'csi.v1.CreateVolumeRequest' is not UTF-8 text without NUL");
}

static void bad_utf8_deep_inside_is_refused(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(CHECK("\x22\x06\x0a\x01k\x12\x01\xff", &err), -ERR_INVALID);
    assert_string_equal(err.text,
                        "'value' of 'csi.v1.CreateVolumeRequest.ParametersEntry' is not UTF-8 text without NUL");
}

static void unknown_fields_are_skipped(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(CHECK("\xf8\x01\x7f\xfa\x01\x02\xff\xff\xfd\x01zzzz\xf9\x01zzzzzzzz", &err), 0);
    assert_int_equal(CHECK("", &err), 0);
}

static void wrong_lengths_and_tags_are_refused(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(CHECK("\x0a\x7f"
                           "short",
                           &err),
                     -ERR_INVALID);
    assert_int_equal(CHECK("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &err), -ERR_INVALID);
    assert_int_equal(CHECK("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", &err), -ERR_INVALID);
    assert_int_equal(CHECK("\x02\x00", &err), -ERR_INVALID); /* field 0 */
    assert_int_equal(CHECK("\x0b", &err), -ERR_INVALID);     /* groups are gone */
    assert_int_equal(CHECK("\x0f", &err), -ERR_INVALID);
    assert_int_equal(CHECK("\x0d\x01\x02", &err), -ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_request_is_accepted),         cmocka_unit_test(a_nul_in_a_string_is_refused_by_name),
        cmocka_unit_test(bad_utf8_deep_inside_is_refused),    cmocka_unit_test(unknown_fields_are_skipped),
        cmocka_unit_test(wrong_lengths_and_tags_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
