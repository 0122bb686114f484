/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"
#include "pending_publish.h"
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
    assert_false(pod_volumes_exist(target));
}

static void mounted_token_counts_and_its_empty_directory_does_not(void **state)
{
    (void)state;
    add("uid/volumes/kubernetes.io~projected");
    assert_false(pod_volumes_exist(target));
    add("uid/volumes/kubernetes.io~projected/kube-api-access-x");
    assert_true(pod_volumes_exist(target));
    assert_int_equal(unlinkat(dir, "uid/volumes/kubernetes.io~projected/kube-api-access-x", AT_REMOVEDIR), 0);
    assert_false(pod_volumes_exist(target));
}

static void volume_of_another_driver_does_not_count(void **state)
{
    (void)state;
    add("uid/volumes/kubernetes.io~csi/pvc-2");
    assert_false(pod_volumes_exist(target));
}

static void path_outside_the_kubelet_has_no_pod_volumes(void **state)
{
    (void)state;
    assert_false(pod_volumes_exist("/"));
    assert_false(pod_volumes_exist(""));
    assert_false(pod_volumes_exist("/nowhere/volumes/kubernetes.io~csi/pvc-1/mount"));
    assert_false(pod_volumes_exist("/alloc/data/volumes/pvc-1"));
}

#define ON_A_POD(test) cmocka_unit_test_setup_teardown(test, make_pod, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_POD(a_pod_with_nothing_but_this_volume_has_none),
        ON_A_POD(mounted_token_counts_and_its_empty_directory_does_not),
        ON_A_POD(volume_of_another_driver_does_not_count),
        ON_A_POD(path_outside_the_kubelet_has_no_pod_volumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
