/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"
#include "siblings.h"
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static char target[PATH_MAX];

static void add(const char *path)
{
    assert_int_equal(mkdirat(dir, path, 0700), 0);
}

static int make_pod(void **state)
{
    int r = folder_setup(state);
    add("uid");
    add("uid/volumes");
    add("uid/volumes/kubernetes.io~csi");
    add("uid/volumes/kubernetes.io~csi/pvc-1");
    snprintf(target, sizeof target, "%s/uid/volumes/kubernetes.io~csi/pvc-1/mount", dir_name);
    return r;
}

static void a_pod_with_nothing_but_this_volume_has_none(void **state)
{
    (void)state;
    assert_false(siblings_are_there(target));
}

static void a_token_is_one_and_what_is_left_of_it_is_none(void **state)
{
    (void)state;
    add("uid/volumes/kubernetes.io~projected");
    assert_false(siblings_are_there(target));
    add("uid/volumes/kubernetes.io~projected/kube-api-access-x");
    assert_true(siblings_are_there(target));
    assert_int_equal(unlinkat(dir, "uid/volumes/kubernetes.io~projected/kube-api-access-x", AT_REMOVEDIR), 0);
    assert_false(siblings_are_there(target));
}

static void another_volume_of_a_driver_is_none(void **state)
{
    (void)state;
    add("uid/volumes/kubernetes.io~csi/pvc-2");
    assert_false(siblings_are_there(target));
}

static void a_path_that_is_no_kubelets_has_none(void **state)
{
    (void)state;
    assert_false(siblings_are_there("/"));
    assert_false(siblings_are_there(""));
    assert_false(siblings_are_there("/nowhere/volumes/kubernetes.io~csi/pvc-1/mount"));
    assert_false(siblings_are_there("/alloc/data/volumes/pvc-1"));
}

#define ON_A_POD(test) cmocka_unit_test_setup_teardown(test, make_pod, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_POD(a_pod_with_nothing_but_this_volume_has_none),
        ON_A_POD(a_token_is_one_and_what_is_left_of_it_is_none),
        ON_A_POD(another_volume_of_a_driver_is_none),
        ON_A_POD(a_path_that_is_no_kubelets_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
